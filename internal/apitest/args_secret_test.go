package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

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
	Any         any                     `json:"any"`
}

func (secretArgs) Kind() string { return "secret" }

type secretWhole struct{ secretSealed }

func (*secretWhole) Kind() string { return "whole" }

type plainArgs struct{ To string }

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
		"**.key", "Odd", "all", "card.number", "cards[][].number", "holder", "named.*[].number", "number", "sealed", "tree.**.Pin",
	}
	if got := all[0].Secret; len(got) != 3 || !slices.Equal(got["secret"], want) || !reflect.DeepEqual(got["secret.old"], want) || !reflect.DeepEqual(got["whole"], []string{""}) {
		t.Errorf("shown: %q", fmt.Sprint(got))
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
