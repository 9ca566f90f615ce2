package errand

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// RawArgs are args that the program knows only as JSON, of a kind that it knows only
// when it runs: those of an importer, a proxy, or a worker for programs in other
// languages. It is the one type of args whose values may be of different kinds. Jobs
// are the same whether they were enqueued as RawArgs or as the type of their kind, and
// [HandleRaw] takes both.
type RawArgs struct {
	// OfKind is the kind of the job. It must be a name, as that of every kind.
	OfKind string
	// JSON is one value of JSON. Space around its tokens is not kept. If empty, null.
	JSON json.RawMessage
}

// Kind returns OfKind.
func (r RawArgs) Kind() string { return r.OfKind }

// MarshalJSON returns JSON, or null if it is empty.
func (r RawArgs) MarshalJSON() ([]byte, error) { return r.JSON.MarshalJSON() }

// UnmarshalJSON keeps a copy of b as JSON.
func (r *RawArgs) UnmarshalJSON(b []byte) error {
	r.JSON = bytes.Clone(b)
	return nil
}

// HandleRaw registers fn as the handler of the jobs of a kind, as [Handle] does, but
// with args that are not decoded. OfKind of the args is the job's kind.
//
// HandleRaw panics on misuse: a nil fn, a malformed kind or one that has a handler
// already, bad options, or a call after Run.
func HandleRaw(w *Worker, kind string, fn func(ctx context.Context, job *Job[RawArgs]) error, o ...HandlerOptions) {
	if fn == nil {
		panic(fmt.Sprintf("errand: HandleRaw %q: nil handler", kind))
	}
	w.register(kind, o, handler(w, fn))
}

// isRaw reports whether t is RawArgs or a pointer to it.
func isRaw(t reflect.Type) bool { return deref(t) == reflect.TypeFor[RawArgs]() }
