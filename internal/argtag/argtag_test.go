package argtag_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/argtag"
)

type base struct {
	ID   string `json:"id" errand:"unique"`
	Note string `json:"note"`
}

type node struct {
	Name  string           `json:"name" errand:"unique"`
	Next  *node            `json:"next,omitempty"`
	By    map[string]*node `json:"by,omitempty"`
	Extra int              `json:"extra"`
}

type card struct {
	Pin  string `json:"pin" errand:"secret"`
	Name string `json:"name"`
}

type sealed struct {
	id string `errand:"unique"`
}

func (s sealed) MarshalJSON() ([]byte, error) { return json.Marshal(s.id) }

type kept struct{ X, Y int }

func TestKeyOf(t *testing.T) {
	for what, c := range map[string]struct {
		args   any
		want   string // of the JSON in the key; empty: there is no such field
		secret bool
	}{
		"no tag":           {card{}, "", false},
		"a map":            {map[string]int{"a": 1}, "", false},
		"embedded":         {struct{ base }{base{"1", "n"}}, `{"id":"1"}`, false},
		"embedded pointer": {&struct{ *base }{&base{"1", "n"}}, `{"id":"1"}`, false},
		"embedded, nil":    {struct{ *base }{}, `{}`, false},
		"embedded and named": {struct {
			base `json:"b"`
		}{base{"1", "n"}}, `{"b":{"id":"1"}}`, false},
		"embedded as a whole": {struct {
			card `errand:"unique"`
			More int
		}{card{"1", "n"}, 2}, `{"name":"n","pin":"1"}`, true},
		"nested": {struct {
			Order *base `json:"order"`
			Card  card
			At    time.Time
		}{Order: &base{ID: "1"}}, `{"order":{"id":"1"}}`, false},
		"nested, nil":    {struct{ Order *base }{}, `{"Order":null}`, false},
		"list":           {struct{ All [][]base }{[][]base{{{ID: "1"}, {ID: "2"}}, nil}}, `{"All":[[{"id":"1"},{"id":"2"}],null]}`, false},
		"map of structs": {struct{ By map[string]base }{map[string]base{"a": {ID: "1", Note: "n"}}}, `{"By":{"a":{"id":"1"}}}`, false},
		"of itself":      {&node{"a", &node{"b", nil, nil, 1}, map[string]*node{"x": {Name: "c"}}, 2}, `{"by":{"x":{"name":"c"}},"name":"a","next":{"name":"b"}}`, false},
		"whole": {struct {
			At  time.Time       `json:"at" errand:"unique"`
			Raw json.RawMessage `errand:"unique"`
			Any any             `errand:"unique"`
			P   kept            `errand:"unique"`
			Out string
		}{Raw: json.RawMessage(`{"a":1}`), Any: base{"1", "n"}, P: kept{1, 2}}, `{"Any":{"id":"1","note":"n"},"P":{"X":1,"Y":2},"Raw":{"a":1},"at":"0001-01-01T00:00:00Z"}`, false},
		"secret": {struct {
			Pin string `errand:"unique,secret"`
		}{"1"}, `{"Pin":"1"}`, true},
		"secret the other": {struct {
			Pin string `errand:"secret,unique"`
		}{"1"}, `{"Pin":"1"}`, true},
		"within a secret": {struct {
			B base `errand:"secret"`
		}{base{ID: "1"}}, `{"B":{"id":"1"}}`, true},
		"beside a secret": {struct {
			card
			ID int `errand:"unique"`
		}{ID: 1}, `{"ID":1}`, false},
		"a name that another hides, of a field without a tag": {struct {
			base
			Note string `json:"note"`
		}{base{"1", "n"}, "m"}, `{"id":"1"}`, false},
		"what JSON leaves out": {struct {
			Left base `json:"-"`
			left base
			ID   int `errand:"unique"`
		}{ID: 1}, `{"ID":1}`, false},
	} {
		typ := reflect.TypeOf(c.args)
		k, err := argtag.KeyOf(typ)
		if err != nil || argtag.Check(typ) != nil || (k != nil) != (c.want != "") {
			t.Errorf("%s: %v, %v, %v", what, k, err, argtag.Check(typ))
			continue
		}
		if k == nil {
			continue
		}
		b, _ := json.Marshal(c.args)
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(k.Of(v)); string(got) != c.want || k.Secret != c.secret {
			t.Errorf("%s: %s of %s, secret %t; want %s, %t", what, got, b, k.Secret, c.want, c.secret)
		}
	}
}

func TestKeyOf_refused(t *testing.T) {
	for want, v := range map[string]any{
		`field id of`: struct {
			id int `errand:"unique"`
		}{},
		`field ID of`: struct {
			ID int `json:"-" errand:"unique"`
		}{},
		`sealed writes its JSON itself`: struct{ S sealed }{},
		`has another field called "Key"`: struct {
			plain
			Key string
		}{},
		`or a field in it has, but the JSON of struct { argtag_test.plain; argtag_test.twin } has another field called "Key"`: struct {
			plain
			twin
		}{},
	} {
		if k, err := argtag.KeyOf(reflect.TypeOf(v)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v, %v; want %s", v, k, err, want)
		}
	}
	for _, v := range []any{
		struct {
			A int `errand:"Unique"`
		}{}, struct {
			A int `errand:"unique, secret"`
		}{}, struct {
			A int `errand:""`
		}{}, struct {
			A int `errand:"unique,unique"`
		}{},
		struct {
			A []map[string]*struct {
				B int `errand:"key"`
			}
		}{},
	} {
		if err := argtag.Check(reflect.TypeOf(v)); err == nil || !strings.Contains(err.Error(), `"unique,secret"`) {
			t.Errorf("%T: %v", v, err)
		}
	}
}

type plain struct {
	Key string `errand:"unique"`
}

type twin struct{ Key int }
