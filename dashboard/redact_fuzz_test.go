package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The value of a hidden name is hidden whole, also if a part of it would be hidden in any case.
func TestRedact_wholeValues(t *testing.T) {
	for _, value := range []string{
		`"postgres://user:pw@host/seen"`, `"token=abc; seen=1"`, `"{\"password\":\"x\",\"seen\":\"1234\"}"`, `{"seen":{"password":"x"}}`, `["seen", {"token": 1}]`,
	} {
		for _, form := range []string{`{"name":"password","value":%s}`, `{"value":%s,"name":"password"}`, `{"values":%s,"value":%[1]s,"key":"x-token"}`, `{"password":%s}`} {
			doc := fmt.Sprintf("[1,"+form+",{\"b\":\"c\"}]", value)
			got := string(redact([]byte(doc), newKeys(nil), nil, false))
			if strings.Contains(got, "seen") || !json.Valid([]byte(got)) || !strings.HasSuffix(got, `,{"b":"c"}]`) {
				t.Errorf("%s: %s", doc, got)
			}
		}
	}
}

// What is left of a user and a password of a URL is hidden where the text is cut before the @. A
// host with a port stays.
func TestText_cut(t *testing.T) {
	for text, want := range map[string]string{
		"get ://ann:pla":                  "get ://[hidden]",
		"get ://ann:1":                    "get ://ann:1", // as a port is
		"get ://ann:123456":               "get ://[hidden]",
		"get ://ann:12ab":                 "get ://[hidden]",
		"get ://ann:p/la?n":               "get ://[hidden]",
		"get ://ann:80...":                "get ://[hidden]",
		"get ://ann:pla…":                 "get ://[hidden]",
		"get ://ghp_pla...: more":         "get ://[hidden]: more",
		"get ://:pla":                     "get ://[hidden]",
		"get \"http://host:8080\"":        "get \"http://host:8080\"",
		"(see http://host:80).":           "(see http://host:80).",
		"get http://host:80/a:b":          "get http://host:80/a:b",
		"get http://host/a...":            "get http://host/a...",
		"get http://[::1]:80/":            "get http://[::1]:80/",
		"get \"http://host\": refused":    "get \"http://host\": refused",
		"get http://host:8080: refused":   "get http://host:8080: refused",
		"://ann:pla@host, then ://bob:pl": "://[hidden]@host, then ://[hidden]",
	} {
		if got := newKeys(nil).text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// maker makes JSON of any shape, and the same with each value hidden that has to be.
type maker struct {
	*rand.Rand
	doc, want bytes.Buffer
	secrets   int
}

// both writes to both.
func (m *maker) both(s string) {
	m.doc.WriteString(s)
	m.want.WriteString(s)
}

func (m *maker) space() { m.both([]string{"", "", " ", "\n\t", "\r\n "}[m.IntN(5)]) }

var (
	plainNames  = []string{`"to"`, `"n"`, `""`, `"a.b"`, `"items[]"`, `"\u0000"`, `"card"`, `"*"`, `"é"`, `"**"`}
	secretNames = []string{`"password"`, `"Pass-Word"`, `"x_API-key"`, `"\u0070assword"`, `"my SECRET"`, `"paſſword"`, `"toKen"`, `"mine"`}
	secretPath  = []string{"pin", "list[].pin", "map.*.pin", "**.deep", "a.b.pin"}
)

// value writes a value that is not hidden, and may have hidden ones inside.
func (m *maker) value(depth int) {
	switch n := m.IntN(10); {
	case n < 3 && depth > 0:
		m.list('{', '}', func() {
			if m.IntN(4) == 0 {
				m.both(secretNames[m.IntN(len(secretNames))])
				m.colon()
				m.hidden()
				return
			}
			m.both(plainNames[m.IntN(len(plainNames))])
			m.colon()
			m.value(depth - 1)
		})
	case n < 5 && depth > 0:
		m.list('[', ']', func() { m.value(depth - 1) })
	default:
		m.both(m.simple("seen"))
	}
}

func (m *maker) colon() {
	m.space()
	m.both(":")
	m.space()
}

func (m *maker) list(open, end byte, each func()) {
	m.both(string(open))
	m.space()
	for i := range m.IntN(4) {
		if i > 0 {
			m.both(",")
			m.space()
		}
		each()
		m.space()
	}
	m.both(string(end))
}

// simple returns a value with a word.
func (m *maker) simple(word string) string {
	return []string{
		"null", "true", "-0.0e+10", "12345678901234567890", `"` + word + `"`, `"` + word + ` \" \\ \u2028 ]},: "`, `"[` + word + `"`, `"\ud83d\ude00` + word + `"`,
	}[m.IntN(8)]
}

// hidden writes a value that has to be hidden whole.
func (m *maker) hidden() {
	m.secrets++
	m.want.WriteString(`"[hidden]"`)
	switch m.IntN(3) {
	case 0:
		fmt.Fprintf(&m.doc, `[ {"hunter2":%s , "x":["hunter2"]}, %s]`, m.simple("hunter2"), m.simple("hunter2"))
	case 1:
		fmt.Fprintf(&m.doc, `{"hunter2":{ }, "b":%s}`, m.simple("hunter2"))
	default:
		m.doc.WriteString(m.simple("hunter2"))
	}
}

// Hidden values are gone, whatever the shape of the JSON, and all else is as it was, byte for byte.
func TestRedact_any(t *testing.T) {
	k := newKeys([]string{"Mi-ne"})
	secrets := 0
	for seed := range uint64(20_000) {
		m := maker{Rand: rand.New(rand.NewPCG(seed, 1))}
		m.space()
		m.value(5)
		m.space()
		doc := m.doc.Bytes()
		if !json.Valid(doc) {
			t.Fatalf("seed %d makes no JSON: %s", seed, doc)
		}
		before := string(doc)
		got := redact(doc, k, secretPath, false)
		if !bytes.Equal(got, m.want.Bytes()) || !json.Valid(got) || bytes.Contains(got, []byte("hunter2")) || string(doc) != before {
			t.Fatalf("seed %d: %s\nis %s\nwant %s", seed, doc, got, &m.want)
		}
		if all := redact(doc, k, nil, true); !json.Valid(all) || bytes.Contains(all, []byte("seen")) || bytes.Contains(all, []byte("hunter2")) || bytes.Contains(all, []byte("123")) {
			t.Fatalf("seed %d, all: %s\nis %s", seed, doc, all)
		}
		// What is no JSON is hidden whole.
		if cut := doc[:m.IntN(len(doc))]; len(cut) > 0 && !json.Valid(cut) {
			if got := redact(cut, k, secretPath, false); string(got) != `"[hidden]"` {
				t.Fatalf("seed %d, cut: %s\nis %s", seed, cut, got)
			}
		}
		secrets += m.secrets
	}
	if secrets < 5000 {
		t.Errorf("only %d values had to be hidden", secrets)
	}
}

// Paths name values at any place, whatever the case of names, which JSON does not tell apart.
func TestRedact_paths(t *testing.T) {
	for _, c := range []struct{ paths, doc, want string }{
		{"card.number", `{"card":{"number":1,"n":2},"number":3}`, `{"card":{"number":"[hidden]","n":2},"number":3}`},
		{"card.number", `{"CARD":{"Number":1}, "card":[{"number":{"a":[1]}}]}`, `{"CARD":{"Number":"[hidden]"}, "card":[{"number":"[hidden]"}]}`},
		{"card", `{"card":{"number":1},"cards":2}`, `{"card":"[hidden]","cards":2}`},
		{"items[].pin", `{"items":[{"pin":1},{"pin":"2"},[{"pin":3}]],"pin":4}`, `{"items":[{"pin":"[hidden]"},{"pin":"[hidden]"},[{"pin":"[hidden]"}]],"pin":4}`},
		{"pins[]", `{"pins":[1,2]}`, `{"pins":"[hidden]"}`},
		{"named.*.pin", `{"named":{"a.b":{"pin":1},"pin":2}}`, `{"named":{"a.b":{"pin":"[hidden]"},"pin":2}}`},
		{"*.pin", `{"a":{"pin":1},"b":[{"pin":2}],"pin":3}`, `{"a":{"pin":"[hidden]"},"b":[{"pin":"[hidden]"}],"pin":3}`},
		{"tree.**.pin", `{"tree":{"pin":1,"x":{"y":[{"pin":2}]}},"pin":3}`, `{"tree":{"pin":"[hidden]","x":{"y":[{"pin":"[hidden]"}]}},"pin":3}`},
		{"**.a.**.b", `{"a":{"b":1,"c":{"b":2}},"b":3,"x":{"a":{"b":4}}}`, `{"a":{"b":"[hidden]","c":{"b":"[hidden]"}},"b":3,"x":{"a":{"b":"[hidden]"}}}`},
		{"a.b", `{"a.b":1,"a":{"b":2}}`, `{"a.b":"[hidden]","a":{"b":"[hidden]"}}`},
		{"a[]", `{"a[]":1,"a":2,"b":3}`, `{"a[]":"[hidden]","a":"[hidden]","b":3}`},
		{"[].pin", `[{"pin":1}]`, `[{"pin":"[hidden]"}]`},
		{"", `{"a":1}`, `"[hidden]"`},
		{"[]", ` [1] `, ` "[hidden]" `},
		{"ſ.K", `{"S":{"k":1}}`, `{"S":{"k":"[hidden]"}}`}, // long s, and the sign of kelvin
		{"x", `{"body":"{\"password\":\"p\",\"n\":1.0}","b":"{\"n\":1.0 }"}`, `{"body":"{\"password\":\"[hidden]\",\"n\":1.0}","b":"{\"n\":1.0 }"}`},
		{"x", `"\"{\\\"token\\\":1}\""`, `"\"{\\\"token\\\":\\\"[hidden]\\\"}\""`},
	} {
		if got := redact([]byte(c.doc), newKeys(nil), []string{"none", c.paths}, false); string(got) != c.want {
			t.Errorf("%q in %s: %s, want %s", c.paths, c.doc, got, c.want)
		}
	}
	for doc, want := range map[string]string{
		// names
		`{"pwd":1,"db_pwd":1,"Pass":1,"passphrase":1,"AccessKey":1,"auth":1,"bearer":1,"x-signature":1,"api.key":1}`: `{"pwd":"[hidden]","db_pwd":"[hidden]","Pass":"[hidden]","passphrase":"[hidden]","AccessKey":"[hidden]","auth":"[hidden]","bearer":"[hidden]","x-signature":"[hidden]","api.key":"[hidden]"}`,
		`{"passenger":1,"author":2}`: `{"passenger":1,"author":2}`,
		// a name and its value as members
		`[{"name":"password","value":"x"},{"name":"to","value":"y"}]`:        `[{"name":"password","value":"[hidden]"},{"name":"to","value":"y"}]`,
		`{"value":{"a":[1, {"value":2,"key":"x"}]}, "n":1,"Key":"my_token"}`: `{"value":"[hidden]", "n":1,"Key":"my_token"}`,
		`{"value":{"value":1,"name":"pwd"},"x":2}`:                           `{"value":{"value":"[hidden]","name":"pwd"},"x":2}`,
		`{"name":1,"value":2,"value":"\\"}`:                                  `{"name":1,"value":2,"value":"\\"}`,
		// strings
		`"https://u:p@h/?a=1\u0026Token=x&b=2#f"`: `"https://[hidden]@h/?a=1\u0026Token=[hidden]\u0026b=2#f"`,
		`"postgres://h/db?x=a@b"`:                 `"postgres://h/db?x=a@b"`,
		// names in values
		`"user=ann,password=hunter2"`:                             `"user=ann,password=[hidden]"`,
		`"next=https://h/cb?token=hunter2"`:                       `"next=https://h/cb?token=[hidden]"`,
		`"cmd=\"curl https://h/?token=hunter2\""`:                 `"cmd=\"curl https://h/?token=[hidden]"`,
		`"a=[password=hunter2]"`:                                  `"a=[password=[hidden]"`,
		`"a=b=c=pwd=hunter2"`:                                     `"a=b=c=pwd=[hidden]"`,
		`"?next=https%3A%2F%2Fb%2F%3Ftoken%3Dhunter2"`:            `"?next=[hidden]"`,
		`"?a=1 \u0026next=https%253A%252F%252Fb%253Ftoken%253Dx"`: `"?a=1 \u0026next=[hidden]"`,
		`"?next=b%3Fto%3Dann%26at%3D12%3A30"`:                     `"?next=b%3Fto%3Dann%26at%3D12%3A30"`,
		`"?u=https%3a%2f%2fu%3ap%40h"`:                            `"?u=[hidden]"`,
		// colons
		`"password: hunter2"`:                            `"password: [hidden]"`,
		`"to: ann\nAuthorization: Bearer hunter2\nn: 1"`: `"to: ann\nAuthorization: [hidden]\nn: 1"`,
		`"authorization=Bearer hunter2 n=1"`:             `"authorization=[hidden] n=1"`,
		`"x {'password': 'hunter2', 'n': 1}"`:            `"x {'password': [hidden], 'n': 1}"`,
		`"password =\u003e hunter2"`:                     `"password =\u003e [hidden]"`,
		`"to: ann, at 12:30:59"`:                         `"to: ann, at 12:30:59"`,
		`"http://tokens:8080/@a"`:                        `"http://tokens:8080/@a"`,
		`"http://[::1]:8080/a@b"`:                        `"http://[::1]:8080/a@b"`,
		`"redis://:hun/ter2@h/0"`:                        `"redis://[hidden]@h/0"`,
		`"redis://:9/ter2@h/0"`:                          `"redis://[hidden]@h/0"`,
		`"https://h:1/a redis://u:hun#t@er2@h/0"`:        `"https://h:1/a redis://[hidden]@h/0"`,
		// members
		`{"name":"password","value":1,"values":["hunter2"],"x":2,"Value":{"name":"pin"}}`: `{"name":"password","value":"[hidden]","values":"[hidden]","x":2,"Value":"[hidden]"}`,
		`"user=ann password='a b' x=1"`:                       `"user=ann password=[hidden] x=1"`,
		`"a=1\u0026pass%77ord=x"`:                             `"a=1\u0026pass%77ord=[hidden]"`,
		`"to=\u003ca\u003e"`:                                  `"to=\u003ca\u003e"`,
		`"{\"password\":1}\n{\"password\":2}"`:                `"[hidden]"`,
		`"\ufeff{\"password\":1,\"n\":1}"`:                    "\"\ufeff{\\\"password\\\":\\\"[hidden]\\\",\\\"n\\\":1}\"",
		`"[info] class name, no secrets"`:                     `"[hidden]"`,
		`"[info] class name"`:                                 `"[info] class name"`,
		`"{\"pin\":1}"`:                                       `"{\"pin\":\"[hidden]\"}"`,
		`{"hook":"{\"url\":\"https://h/?token=x\"}","n":1.0}`: `{"hook":"{\"url\":\"https://h/?token=[hidden]\"}","n":1.0}`,
	} {
		if got := redact([]byte(doc), newKeys(nil), []string{"pin"}, false); string(got) != want {
			t.Errorf("%s: %s, want %s", doc, got, want)
		}
	}
	for doc, want := range map[string]string{
		`{"4111111111111111":1,"a@b.c":{"to":2},"card_number.x":3,"":4}`: `{"[hidden]":"[hidden]","[hidden]":{"to":"[hidden]"},"card_number.x":"[hidden]","[hidden]":"[hidden]"}`,
		`{"` + strings.Repeat("a", 65) + `":[ 1 ]}`:                      `{"[hidden]":[ "[hidden]" ]}`,
	} {
		if got := redact([]byte(doc), newKeys(nil), nil, true); string(got) != want {
			t.Errorf("all of %s: %s, want %s", doc, got, want)
		}
	}
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	if got := redact([]byte(deep), newKeys(nil), []string{"a"}, false); string(got) != `"[hidden]"` {
		t.Errorf("of what is too deep: %.100s", got)
	}
}

// People see JSON of messages with <, > and & as they are, and text byte for byte.
func TestMessage_text(t *testing.T) {
	x := request{who: Identity{Role: Admin}}
	for body, want := range map[string]string{
		`{"a":"\u003cb\u003e \\u0026"}`: "{\n  \"a\": \"<b> \\\\u0026\"\n}",
		`not \u003c JSON`:               `not \u003c JSON`,
	} {
		var m messageView
		if x.setBody(&m, []byte(body)); m.Text != want || m.Body != body {
			t.Errorf("%s: %s, and %s", body, m.Text, m.Body)
		}
	}
}
