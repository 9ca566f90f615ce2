package filter_test

import (
	"fmt"

	"github.com/errandq/errand/topic/filter"
)

func ExamplePolicy_Match() {
	rugby, err := filter.Parse(filter.Attributes, []byte(`{
		"store": ["example_corp"],
		"event": [{"anything-but": "order_cancelled"}],
		"customer_interests": ["rugby", "football"],
		"price_usd": [{"numeric": [">=", 100]}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m := filter.NewMessage(map[string]filter.Attribute{
		"store":              {Type: filter.String, Value: "example_corp"},
		"event":              {Type: filter.String, Value: "order_placed"},
		"customer_interests": {Type: filter.StringArray, Value: `["soccer", "rugby"]`},
		"price_usd":          {Type: filter.Number, Value: "210.75"},
	}, nil)
	fmt.Println(rugby.Match(m))
	// Output: true
}

// Keys that are written together match in the same element of an array.
func ExamplePolicy_Match_array() {
	large, err := filter.Parse(filter.Body, []byte(`{"lines": {"sku": [{"prefix": "bolt-"}], "count": [{"numeric": [">", 100]}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, body := range []string{
		`{"lines": [{"sku": "bolt-M4", "count": 500}, {"sku": "nut-M4", "count": 2}]}`,
		`{"lines": [{"sku": "bolt-M4", "count": 2}, {"sku": "nut-M4", "count": 500}]}`,
	} {
		fmt.Println(large.Match(filter.NewMessage(nil, []byte(body))))
	}
	// Output:
	// true
	// false
}

func ExampleParse_or() {
	p, err := filter.Parse(filter.Body, []byte(`{
		"source": ["billing"],
		"$or": [{"amount": [{"numeric": [">", 1000]}]}, {"customer": {"vip": [true]}}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, body := range []string{
		`{"source": "billing", "amount": 1000.01}`,
		`{"source": "billing", "amount": 5, "customer": {"vip": true}}`,
		`{"source": "billing", "amount": 5}`,
	} {
		fmt.Println(p.Match(filter.NewMessage(nil, []byte(body))))
	}
	// Output:
	// true
	// true
	// false
}

func ExampleFaults() {
	_, err := filter.Parse(filter.Attributes, []byte(`{"store": [{"prefix": 5}], "price": [{"numeric": ["!", 1]}]}`))
	for _, f := range filter.Faults(err) {
		fmt.Println(f.Path, f.Offset, f.Value, f.Want)
	}
	// Output:
	// $.store[0].prefix 22 5 must be a string
	// $.price[0].numeric[0] 50 "!" must be one of =, <, <=, >, >=
}

func ExampleAttribute_Validate() {
	fmt.Println(filter.Attribute{Type: filter.Number, Value: "12.5"}.Validate())
	fmt.Println(filter.Attribute{Type: filter.Number, Value: "a dozen"}.Validate())
	// Output:
	// <nil>
	// filter: Value "a dozen": must be a number between -1000000000 and 1000000000
}
