package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	seed   = 20260301
	count  = 1200
	broken = 24 // of count: 2 %
)

// An event is one line of the file.
type event struct {
	ID       string    `json:"id"`
	Type     string    `json:"type"`
	At       string    `json:"at"`
	Order    string    `json:"order"`
	Customer *customer `json:"customer,omitempty"`
	Items    []item    `json:"items,omitempty"`
	Amount   *money    `json:"amount,omitempty"`
	Method   string    `json:"method,omitempty"`
	Carrier  string    `json:"carrier,omitempty"`
	Tracking string    `json:"tracking,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Note     string    `json:"note,omitempty"`

	at time.Time
}

type customer struct {
	Name    string `json:"name"`
	Email   string `json:"email"`
	City    string `json:"city"`
	Country string `json:"country"`
}

type item struct {
	SKU      string `json:"sku"`
	Title    string `json:"title"`
	Quantity int    `json:"quantity"`
	Price    string `json:"price"`
}

type money struct {
	Value    string `json:"value"`
	Currency string `json:"currency"`
}

// A source draws everything from one random sequence.
type source struct {
	*rand.Rand
	orders int
}

// generate returns the whole file.
func generate() []byte {
	s := &source{Rand: rand.New(rand.NewPCG(seed, 0))}
	var events []event
	for len(events) < count {
		events = append(events, s.order()...)
	}
	// Orders overlap in time, as in a real shop.
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Order, b.Order))
	})
	events = events[:count]

	for i := range events {
		events[i].ID = fmt.Sprintf("evt_%06d%08x", i+1, s.Uint32())
	}
	damaged := 0
	for _, i := range s.Perm(count) {
		if damaged < broken && s.damage(&events[i], damages[damaged%len(damages)]) {
			damaged++
		}
	}

	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			panic(err) // strings and numbers always encode
		}
	}
	return out.Bytes()
}

// order tells the story of one order: placed, then cancelled, or paid and
// shipped, then delivered or sent back.
func (s *source) order() []event {
	s.orders++
	m := pick(s, markets)
	at := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC).Add(time.Duration(s.IntN(14*24*3600)) * time.Second)
	name := "ORD-" + fmt.Sprint(104000+s.orders*7+s.IntN(7))
	next := func(kind string, within time.Duration) event {
		at = at.Add(time.Minute + time.Duration(s.Int64N(int64(within))).Truncate(time.Second))
		return event{Type: "order." + kind, At: at.Format(time.RFC3339), Order: name, at: at}
	}

	items, total := s.items(m)
	sum := &money{m.format(total), m.currency}
	placed := next("placed", time.Minute)
	placed.Items, placed.Amount, placed.Customer = items, sum, s.customer(m)
	if s.IntN(6) == 0 {
		placed.Note = s.note()
	}
	story := []event{placed}

	if s.IntN(100) < 12 {
		e := next("cancelled", 6*time.Hour)
		e.Reason = pick(s, []string{"changed my mind", "found it cheaper", "payment failed", "out of stock", "doublon", "注文間違い"})
		return append(story, e)
	}
	paid := next("paid", 2*time.Hour)
	paid.Amount, paid.Method = sum, pick(s, m.methods)
	shipped := next("shipped", 48*time.Hour)
	shipped.Carrier, shipped.Tracking = pick(s, m.carriers), fmt.Sprintf("%s%012d", m.country, s.Int64N(1e12))
	if s.IntN(4) == 0 {
		shipped.Customer = placed.Customer
	}
	story = append(story, paid, shipped)
	switch n := s.IntN(100); {
	case n < 18:
		e := next("refunded", 200*time.Hour)
		part := total
		if s.IntN(2) == 0 { // only some of the goods came back
			part = 1 + s.Int64N(total)
		}
		e.Amount = &money{m.format(part), m.currency}
		e.Reason = pick(s, []string{"damaged in transit", "wrong size", "arrived too late", "zu groß", "n'a pas plu", "cor diferente da foto"})
		story = append(story, e)
	case n < 60:
		story = append(story, next("delivered", 90*time.Hour))
	}
	return story
}

// items draws a basket: mostly small, now and then one of several kilobytes.
func (s *source) items(m market) (list []item, total int64) {
	n := 1 + s.IntN(4)
	if s.IntN(40) == 0 {
		n = 20 + s.IntN(80)
	}
	for range n {
		g := pick(s, goods)
		price := g.cents * int64(70+s.IntN(60)) / 100 * m.rate / 100
		price = max(price, 1)
		q := 1 + s.IntN(1+s.IntN(5))
		list = append(list, item{fmt.Sprintf("%s-%04d", g.sku, s.IntN(10000)), g.title, q, m.format(price)})
		total += price * int64(q)
	}
	return list, total
}

func (s *source) customer(m market) *customer {
	name := pick(s, m.names)
	return &customer{name, fmt.Sprintf("customer%d@example.%s", s.IntN(1e5), pick(s, []string{"org", "com", "net"})), pick(s, m.cities), m.country}
}

func (s *source) note() string {
	note := pick(s, notes)
	if s.IntN(8) == 0 { // somebody has pasted a whole letter
		note = strings.TrimSpace(strings.Repeat(note+" ", 5+s.IntN(25)))
	}
	return note
}

// damages are ways in which real producers manage to make an event malformed.
var damages = []string{"no amount", "quantity", "currency", "amount", "time", "no order"}

// damage makes e malformed in that way, and reports whether it could.
func (s *source) damage(e *event, how string) bool {
	switch how {
	case "time":
		e.At = e.at.Format("02.01.2006 15:04")
		return true
	case "no order":
		e.Order = ""
		return true
	case "quantity":
		if e.Items == nil {
			return false
		}
		e.Items[s.IntN(len(e.Items))].Quantity = -1 - s.IntN(3)
		return true
	}
	if e.Amount == nil {
		return false
	}
	a := *e.Amount // a copy, as events of one order share theirs
	e.Amount = &a
	switch how {
	case "no amount":
		e.Amount = nil
	case "amount":
		a.Value = strings.Replace(a.Value, ".", ",", 1) + " " + a.Currency
	case "currency":
		a.Currency = pick(s, []string{"EURO", "US$", "", "ZZZ"})
	}
	return true
}

func pick[T any](s *source, list []T) T { return list[s.IntN(len(list))] }
