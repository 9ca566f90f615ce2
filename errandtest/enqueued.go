package errandtest

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
)

// Enqueued is a job with its args.
type Enqueued[A errand.Args] struct {
	errand.JobInfo
	// Args are those of the JobInfo, decoded.
	Args A
}

// RequireEnqueued returns the jobs of the kind of A that match, those that were enqueued
// first before others. Jobs of all states count, as long as the file keeps them. A job matches
// if each match returns nil for it; without a match all do. If none matches, the test ends
// with a message that lists the jobs of the kind, each with the error of its match.
func RequireEnqueued[A errand.Args](t testing.TB, q *errand.Queue, match ...func(Enqueued[A]) error) []Enqueued[A] {
	t.Helper()
	return require(t, committed(q), match)
}

// RequireNone ends the test if a job of the kind of A matches, see [RequireEnqueued].
func RequireNone[A errand.Args](t testing.TB, q *errand.Queue, match ...func(Enqueued[A]) error) {
	t.Helper()
	refuse(t, committed(q), match)
}

// RequireEnqueuedTx is [RequireEnqueued] for the jobs that tx sees: those that it enqueues, and
// those that were there before. tx is a transaction of [errand.Queue.Tx], or of the
// application on the same file; nobody else may read from it meanwhile.
func RequireEnqueuedTx[A errand.Args](t testing.TB, q *errand.Queue, tx *sql.Tx, match ...func(Enqueued[A]) error) []Enqueued[A] {
	t.Helper()
	return require(t, within(q, tx), match)
}

// RequireNoneTx is [RequireNone] for the jobs that tx sees, see [RequireEnqueuedTx].
func RequireNoneTx[A errand.Args](t testing.TB, q *errand.Queue, tx *sql.Tx, match ...func(Enqueued[A]) error) {
	t.Helper()
	refuse(t, within(q, tx), match)
}

// source returns the jobs of a kind.
type source func(kind string) ([]errand.JobInfo, error)

func within(q *errand.Queue, tx *sql.Tx) source {
	return func(kind string) ([]errand.JobInfo, error) {
		return door.JobsTx[errand.JobInfo](context.Background(), q, tx, kind)
	}
}

func committed(q *errand.Queue) source {
	return func(kind string) ([]errand.JobInfo, error) { return list(q, errand.JobFilter{Kind: kind}) }
}

// list returns all that is known of the jobs that match.
func list(q *errand.Queue, f errand.JobFilter) (all []errand.JobInfo, err error) {
	ctx := context.Background()
	for o := (errand.ListOptions{Limit: 1000}); ; {
		page, err := q.Jobs(ctx, f, &o)
		if err != nil {
			return nil, err
		}
		for _, found := range page.Jobs {
			j, err := q.Job(ctx, found.ID)
			if err == nil {
				all = append(all, j)
			} else if !errors.Is(err, errand.ErrNotFound) {
				return nil, err
			}
		}
		if o.After = page.Next; o.After == "" {
			return all, nil
		}
	}
}

// found is a job with the reason why it does not match, nil if it does.
type found[A errand.Args] struct {
	job  Enqueued[A]
	miss error
}

func look[A errand.Args](t testing.TB, from source, match []func(Enqueued[A]) error) (kind string, all []found[A], n int) {
	t.Helper()
	kind, err := kindOf[A]()
	if err == nil {
		var jobs []errand.JobInfo
		jobs, err = from(kind)
		slices.SortFunc(jobs, func(a, b errand.JobInfo) int {
			return cmp.Compare(a.ID.Key(), b.ID.Key())
		})
		for _, j := range jobs {
			f := found[A]{job: Enqueued[A]{JobInfo: j}}
			if err := json.Unmarshal(j.Args, &f.job.Args); err != nil {
				f.miss = fmt.Errorf("its args do not decode: %w", err)
			}
			for i := 0; i < len(match) && f.miss == nil; i++ {
				f.miss = match[i](f.job)
			}
			if f.miss == nil {
				n++
			}
			all = append(all, f)
		}
	}
	if err != nil {
		t.Fatalf("errandtest: %v", err)
	}
	return kind, all, n
}

func require[A errand.Args](t testing.TB, from source, match []func(Enqueued[A]) error) (jobs []Enqueued[A]) {
	t.Helper()
	kind, all, n := look(t, from, match)
	if len(all) == 0 {
		t.Fatalf("errandtest: no job of kind %s was enqueued", kind)
	}
	if n == 0 {
		t.Fatalf("errandtest: no job of kind %s matches:%s", kind, describe(all))
	}
	for _, f := range all {
		if f.miss == nil {
			jobs = append(jobs, f.job)
		}
	}
	return jobs
}

func refuse[A errand.Args](t testing.TB, from source, match []func(Enqueued[A]) error) {
	t.Helper()
	if kind, all, n := look(t, from, match); n > 0 {
		all = slices.DeleteFunc(all, func(f found[A]) bool { return f.miss != nil })
		t.Fatalf("errandtest: jobs of kind %s were enqueued that should not be there:%s", kind, describe(all))
	}
}

func describe[A errand.Args](all []found[A]) string {
	var text strings.Builder
	for i, f := range all {
		if i == mostNamed {
			fmt.Fprintf(&text, "\n\tand %d more", len(all)-i)
			break
		}
		j := &f.job.JobInfo
		fmt.Fprintf(&text, "\n\t%v in queue %s, %s, with args %.200s", j.ID, j.Queue, j.State, j.Args)
		if f.miss != nil {
			fmt.Fprintf(&text, ": %v", f.miss)
		}
	}
	return text.String()
}

// kindOf returns the kind of a type of args.
func kindOf[A errand.Args]() (string, error) {
	v := reflect.New(reflect.TypeFor[A]()).Elem()
	switch v.Kind() {
	case reflect.Interface:
		return "", fmt.Errorf("%v is an interface: the type of the args must be known", v.Type())
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	}
	kind := v.Interface().(errand.Args).Kind()
	if kind == "" {
		return "", fmt.Errorf("%v is of many kinds: the kind must be that of a type", v.Type())
	}
	return kind, nil
}
