package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

type secretCard struct {
	Number string `json:"number" errand:"secret"`
	Holder string `json:"holder"`
}

type secretNode struct {
	Pin      int                    `errand:"secret"`
	Children []*secretNode          `json:"children"`
	ByName   map[string]*secretNode `json:"by_name"`
}

type secretBase struct {
	Key  string        `json:"key" errand:"secret"`
	Next []*secretBase `json:"next"`
}

// secretSealed writes its JSON itself.
type secretSealed struct {
	number string `errand:"secret"`
}

func (s secretSealed) MarshalJSON() ([]byte, error) { return json.Marshal(s.number) }

type secretArgs struct {
	secretBase
	*secretCard `errand:"secret"`
	Card        *secretCard             `json:"card"`
	Cards       [][]secretCard          `json:"cards"`
	Named       map[string][]secretCard `json:"named"`
	All         map[string]string       `json:"all" errand:"secret"`
	Tree        secretNode              `json:"tree"`
	Sealed      secretSealed            `json:"sealed"`
	Odd         string                  `json:"it's" errand:"secret"` //nolint:staticcheck // some have a name that JSON does not take
	Left        secretCard              `json:"-"`
	secretPart  `json:"part"`
	Any         any                       `json:"any"`
	Anys        map[string][]any          `json:"anys"`
	Raw         json.RawMessage           `json:"raw"`
	Free        struct{ Name, Value any } `json:"free"`
	Within      struct {
		at any
		At int
	} `json:"within"`
	At time.Time `json:"at"`
}

type secretPart struct {
	Pin string `json:"pin" errand:"secret"`
}

func (secretArgs) Kind() string { return "secret" }

type secretWhole struct{ secretSealed }

func (*secretWhole) Kind() string { return "whole" }

type plainArgs struct {
	To  string
	Any any
	Raw json.RawMessage
}

func (plainArgs) Kind() string { return "plain" }

// Workers show where args have secret fields, under all names of a kind, and of nothing else.
func TestHandle_secret(t *testing.T) {
	q := openQueue(t, nil)
	w := errand.NewWorker(q, nil)
	started := make(chan struct{})
	errand.Handle(w, func(context.Context, *errand.Job[secretArgs]) error { return nil }, errand.HandlerOptions{Aliases: []string{"secret.old"}})
	errand.HandleMany(w, func(context.Context, []*errand.Job[*secretWhole]) error { return nil }, errand.BatchOptions{Max: 2})
	errand.HandleRaw(w, "raw", func(context.Context, *errand.Job[errand.RawArgs]) error { return nil })
	errand.Handle(w, func(context.Context, *errand.Job[plainArgs]) error {
		close(started)
		return nil
	})
	if _, err := q.Enqueue(t.Context(), plainArgs{}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-started
	all, err := q.Workers(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want := []string{
		"**.key", "Odd", "all", "any", "anys.*[]", "card.number", "cards[][].number", "free.Name", "free.Value", "holder", "named.*[].number",
		"number", "part.pin", "raw", "sealed", "tree.**.Pin",
	}
	if got := all[0].Secret; len(got) != 4 || !slices.Equal(got["raw"], []string{"**"}) || !slices.Equal(got["secret"], want) || !reflect.DeepEqual(got["secret.old"], want) || !reflect.DeepEqual(got["whole"], []string{""}) {
		t.Errorf("shown: %q", fmt.Sprint(got))
	}
}

type strictArgs struct {
	At  time.Time `json:"at" errand:"secret"`
	Pin int8      `json:"pin" errand:"secret"`
}

func (strictArgs) Kind() string { return "strict" }

type looseArgs struct {
	At time.Time `json:"at"`
}

func (looseArgs) Kind() string { return "loose" }

// The error of args that do not decode has no secret value in it, with middleware or without, and
// else it has.
func TestHandle_secretDecode(t *testing.T) {
	for _, all := range [][]errand.Middleware{nil, {func(next errand.HandlerFunc) errand.HandlerFunc { return next }}} {
		q := openQueue(t, nil)
		w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: all})
		errand.Handle(w, func(context.Context, *errand.Job[strictArgs]) error { return nil })
		errand.Handle(w, func(context.Context, *errand.Job[looseArgs]) error { return nil })
		want := map[errand.ID]string{}
		for _, c := range []struct{ kind, args, want string }{
			{"strict", `{"at":"83917"}`, "decode: args: *time.ParseError: its text is left out, as it may have a value of a secret field"},
			{"strict", `{"pin":83917}`, "decode: args: json: cannot unmarshal number into field pin of type int8"},
			{"loose", `{"at":"83917"}`, "83917"},
		} {
			e, err := q.Enqueue(t.Context(), errand.RawArgs{OfKind: c.kind, JSON: []byte(c.args)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want[e.ID] = c.want
		}
		failed, err := q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventRetried}}, 100)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		for len(want) > 0 {
			id := (<-failed.Events()).ID
			if want[id] == "" { // once more
				continue
			}
			if info, err := q.Job(t.Context(), id); err != nil || !strings.Contains(info.Error, want[id]) || len(want[id]) > 5 && strings.Contains(info.Error, "83917") {
				t.Errorf("%q, %v, want %q", info.Error, err, want[id])
			}
			delete(want, id)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

type misspelt struct {
	In []struct {
		Pin string `errand:"Secret"`
	}
}

func (misspelt) Kind() string { return "misspelt" }

// A tag that hides nothing is refused when the handler is registered.
func TestHandle_secretMisspelt(t *testing.T) {
	defer func() {
		if v := fmt.Sprint(recover()); !strings.Contains(v, `the tag errand of field Pin`) || !strings.Contains(v, `must be "secret", not "Secret"`) {
			t.Error(v)
		}
	}()
	errand.Handle(errand.NewWorker(openQueue(t, nil), nil), func(context.Context, *errand.Job[misspelt]) error { return nil })
}
