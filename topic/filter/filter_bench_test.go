package filter_test

import (
	"fmt"
	"testing"

	"github.com/errandq/errand/topic/filter"
)

// fanOut returns policies as those of subscriptions, one of ten of which matches the
// message.
func fanOut(t testing.TB, n int) (policies []*filter.Policy, m *filter.Message) {
	for i := range n {
		scope := filter.Scope(i % 2)
		doc := `{"tenant": ["t%d"], "event": [{"prefix": "order_"}], "price": [{"numeric": [">=", 100, "<", 1000]}],
			"$or": [{"ip": [{"cidr": "10.0.0.0/8"}]}, {"note": [{"exists": false}, {"wildcard": "*vip*"}]}]}`
		policies = append(policies, parse(t, scope, fmt.Sprintf(doc, i/2%10)))
	}
	return policies, filter.NewMessage(map[string]filter.Attribute{
		"tenant": str("t3"), "event": arr(`["paid", "order_placed"]`), "price": num("210.75"), "ip": str("192.168.1.7"),
	}, []byte(`{"tenant": "t3", "event": ["paid", "order_placed"], "price": 210.75, "ip": "192.168.1.7", "lines": [{"sku": "a"}, {"sku": "b"}]}`))
}

func TestPolicy_Match_allocations(t *testing.T) {
	policies, m := fanOut(t, 20)
	host := parse(t, filter.Body, `{"ip": [{"cidr": "10.0.0.0/8"}]}`)
	noAddress := filter.NewMessage(nil, []byte(`{"ip": "somewhere"}`))
	matches := 0
	n := testing.AllocsPerRun(100, func() {
		matches = 0
		for _, p := range policies {
			if p.Match(m) {
				matches++
			}
		}
		if host.Match(noAddress) {
			t.Error("a name is an address")
		}
	})
	if n != 0 || matches != 2 {
		t.Errorf("%v allocations, %d of 20 matches: want 0 and 2", n, matches)
	}
}

// One message against 1,000 policies.
func BenchmarkMatch(b *testing.B) {
	policies, m := fanOut(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range policies {
			p.Match(m)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	policies, _ := fanOut(b, 2)
	b.ReportAllocs()
	for b.Loop() {
		_, m := fanOut(b, 0)
		for _, p := range policies {
			p.Match(m)
		}
	}
}
