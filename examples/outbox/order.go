package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// An order is an event as the receiver reads it.
type order struct {
	ID     string    `json:"id"`
	Type   string    `json:"type"`
	At     string    `json:"at"`
	Order  string    `json:"order"`
	Items  []product `json:"items"`
	Amount *amount   `json:"amount"`
}

type product struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

type amount struct {
	Value    string `json:"value"`
	Currency string `json:"currency"`
}

var currencies = []string{"BRL", "EUR", "GBP", "INR", "JPY", "KWD", "PLN", "SEK", "USD"}

// check returns what is malformed about an event. The same event always gets the
// same answer, so sending it again cannot help: the failure is permanent.
func (e order) check() error {
	if e.Order == "" {
		return errors.New("order is missing")
	}
	if _, err := time.Parse(time.RFC3339, e.At); err != nil {
		return errors.New("at is not a time of RFC 3339")
	}
	for _, p := range e.Items {
		if p.Quantity < 1 {
			return errors.New("quantity is not positive")
		}
	}
	if slices.Contains([]string{"order.placed", "order.paid", "order.refunded"}, e.Type) {
		return e.Amount.check()
	}
	return nil
}

func (a *amount) check() error {
	if a == nil {
		return errors.New("amount is missing")
	}
	if v, err := strconv.ParseFloat(a.Value, 64); err != nil || v <= 0 {
		return errors.New("amount is not a number above zero")
	}
	if !slices.Contains(currencies, a.Currency) {
		return fmt.Errorf("currency %q is unknown", a.Currency)
	}
	return nil
}
