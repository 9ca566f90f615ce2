package cookbook_test

import (
	"fmt"

	"github.com/errandq/errand/topic/filter"
)

// Which of three subscriptions get an order.
func Example_filters() {
	policies := []struct {
		subscription string
		scope        filter.Scope
		policy       string
	}{
		{"warehouse", filter.Attributes, `{"event": [{"prefix": "order_"}]}`},
		{"fraud desk", filter.Attributes, `{"event": ["order_placed"], "price_usd": [{"numeric": [">=", 1000]}]}`},
		{"bolts", filter.Body, `{"lines": {"sku": [{"prefix": "bolt-"}], "count": [{"numeric": [">", 100]}]}}`},
	}
	attributes := map[string]filter.Attribute{
		"event":     {Type: filter.String, Value: "order_placed"},
		"price_usd": {Type: filter.Number, Value: "210.75"},
	}
	m := filter.NewMessage(attributes, []byte(`{"lines": [{"sku": "bolt-M4", "count": 500}]}`))
	for _, s := range policies {
		p := must(filter.Parse(s.scope, []byte(s.policy)))
		fmt.Println(s.subscription, p.Match(m))
	}
	_, err := filter.Parse(filter.Attributes, []byte(`{"price_usd": [{"numeric": [">=", "1000"]}]}`))
	fmt.Println(err)
	// Output:
	// warehouse true
	// fraud desk false
	// bolts true
	// filter: $.price_usd[0].numeric[1] "1000" at byte 34: must be a number between -1000000000 and 1000000000
}
