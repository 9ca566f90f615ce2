package seconds_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/seconds"
)

type place struct {
	Queue string        `json:"queue,omitempty"`
	Aging time.Duration `json:"aging_s"`
}

// Methods of an embedded struct, which the outer one would get, do not count.
func (place) MarshalJSON() ([]byte, error) { return nil, errors.New("called") }

type embedded struct{ N int }

type all struct {
	place
	embedded `json:"own"` // unexported: left out, as by encoding/json without a tag

	Took   time.Duration  `json:"took_s,omitempty"`
	Per    *time.Duration `json:"per_s,omitempty"`
	Zero   *time.Duration `json:"zero_s,omitempty"`
	At     time.Time      `json:"at,omitzero"`
	Hidden time.Duration  `json:"-"`
	Names  []string       `json:"names"`

	private time.Duration
}

func TestSeconds(t *testing.T) {
	v := all{
		place: place{"mail", -90 * time.Second}, Took: 1500 * time.Millisecond, Per: new(time.Nanosecond), Zero: new(time.Duration),
		Hidden: 5, Names: []string{"a"}, private: 6,
	}
	b, err := seconds.Marshal(&v)
	const want = `{"queue":"mail","aging_s":-90,"took_s":1.5,"per_s":0.000000001,"zero_s":0,"names":["a"]}`
	if err != nil || string(b) != want {
		t.Fatalf("%s, %v; want %s", b, err, want)
	}
	got := all{Hidden: 5, private: 6, At: time.Unix(7, 0)}
	if err := seconds.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	v.At = time.Unix(7, 0) // which the JSON does not have
	if !reflect.DeepEqual(got, v) {
		t.Errorf("read %+v, want %+v", got, v)
	}
}

func TestSeconds_exact(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 10 * time.Second: "10", -time.Millisecond: "-0.001", time.Hour + 1: "3600.000000001",
		math.MaxInt64: "9223372036.854775807", math.MinInt64: "-9223372036.854775808",
	} {
		type one struct {
			D time.Duration `json:"d_s"`
		}
		b, err := seconds.Marshal(one{d})
		if err != nil || string(b) != `{"d_s":`+want+`}` {
			t.Errorf("%v: %s, %v", d, b, err)
		}
		var got one
		if err := seconds.Unmarshal(b, &got); err != nil || got.D != d {
			t.Errorf("%s: %v, %v", b, got.D, err)
		}
	}
	got := all{}
	if err := seconds.Unmarshal([]byte(`{"took_s":1.5e-3}`), &got); err != nil || got.Took != 1500*time.Microsecond {
		t.Errorf("with an exponent: %v, %v", got.Took, err)
	}
}

func TestSeconds_refuses(t *testing.T) {
	for _, text := range []string{`{"took_s":"1s"}`, `{"took_s":1e10}`, `{"took_s":-1e10}`, `{"took_s":}`} {
		v := all{Took: time.Second}
		err := seconds.Unmarshal([]byte(text), &v)
		if err == nil || v.Took != time.Second {
			t.Errorf("%s: %v, took %v", text, err, v.Took)
		}
		if strings.Contains(text, "e10") && !strings.Contains(err.Error(), "292 years") {
			t.Errorf("%s: %v", text, err)
		}
	}
	v := all{Took: time.Second}
	if err := seconds.Unmarshal([]byte(`{"took_s":null}`), &v); err != nil || v.Took != time.Second {
		t.Errorf("null: %v, %v", err, v.Took)
	}
}

// What is joined is one object, whatever part of it is empty, and each part has its own methods.
func TestJoined(t *testing.T) {
	type more struct {
		Took  seconds.Duration `json:"took_s,omitempty"`
		Names []string         `json:"names,omitempty"`
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{seconds.Join(sealed{"a<b"}, more{Took: seconds.Duration(1500 * time.Millisecond)}), `{"sealed":"a<b","took_s":1.5}`},
		{seconds.Join(sealed{"a"}, more{}), `{"sealed":"a"}`},
		{seconds.Join(struct{}{}, more{Names: []string{"n"}}), `{"names":["n"]}`},
		{seconds.Join(struct{}{}, struct{}{}), `{}`},
		{seconds.Join(map[string]int{"n": 1}, map[string]any{"in": seconds.Join(sealed{}, more{Took: 1})}), `{"n":1,"in":{"sealed":"","took_s":0.000000001}}`},
	} {
		if b, err := seconds.JSON(c.v); err != nil || string(b) != c.want {
			t.Errorf("%s, %v; want %s", b, err, c.want)
		}
	}
	for _, v := range []any{seconds.Join(map[string]any{"c": make(chan int)}, struct{}{}), seconds.Join(struct{}{}, map[string]any{"c": make(chan int)})} {
		if b, err := seconds.JSON(v); err == nil {
			t.Errorf("%s of a channel", b)
		}
	}
}

// sealed has a method of its own.
type sealed struct{ text string }

func (s sealed) MarshalJSON() ([]byte, error) { return []byte(`{"sealed":"` + s.text + `"}`), nil }
