package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLoadEvents_TheFileIsVaried(t *testing.T) {
	events := allOrders(t)
	if len(events) < 1000 {
		t.Errorf("%d events, want at least 1000", len(events))
	}
	ids, kinds, money, faults := map[string]bool{}, map[string]int{}, map[string]int{}, map[string]int{}
	var bad, hang int
	for _, o := range events {
		if ids[o.ID] {
			t.Errorf("event %s comes twice", o.ID)
		}
		ids[o.ID] = true
		kinds[o.Type]++
		if err := o.check(); err != nil {
			bad++
			faults[err.Error()]++
			continue
		}
		if o.unlucky() {
			hang++
		}
		if o.Amount != nil {
			money[o.Amount.Currency]++
		}
	}
	t.Logf("malformed %v, hanging %d, types %v, currencies %v", faults, hang, kinds, money)
	if 100*bad < len(events) || 100*bad > 3*len(events) {
		t.Errorf("%d events are malformed, want about 2 %%", bad)
	}
	if len(kinds) < 6 || len(money) != len(currencies) || len(faults) < 4 || hang < 3 {
		t.Error("events are not varied enough")
	}
}

func TestLoadEvents_NamesTheBadLine(t *testing.T) {
	for file, want := range map[string]string{
		"{\"id\":\"a\"}\n{\"type\":\"b\"}\n": "line 2: no id",
		"{\"id\":\"a\"}\n{\"id\":\n":         "line 2: ",
	} {
		if _, err := loadEvents([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", file, err, want)
		}
	}
}

// allOrders returns the events of the file as the receiver reads them.
func allOrders(t *testing.T) []order {
	t.Helper()
	events, err := loadEvents(eventsFile)
	if err != nil {
		t.Fatal(err)
	}
	orders := make([]order, len(events))
	for i, e := range events {
		if err := json.Unmarshal(e.Body, &orders[i]); err != nil {
			t.Fatal(err)
		}
	}
	return orders
}
