package apitest

import (
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func TestConfigure_OrderFaults(t *testing.T) {
	q, remove := tempQueue(nil)
	defer remove()
	lane := errand.Lane{Queue: "default"}
	for _, c := range []struct {
		lane  errand.Lane
		s     errand.Settings
		fault string
	}{
		{lane, errand.Settings{Order: new(errand.Order(7))}, "order"},
		{errand.Lane{}, errand.Settings{Order: new(errand.Newest)}, "order"},
		{errand.Lane{Queue: "default", Kind: "k"}, errand.Settings{Aging: new(time.Hour)}, "aging"},
		{lane, errand.Settings{Aging: new(time.Millisecond)}, "aging"},
		{lane, errand.Settings{Aging: new(-time.Hour)}, "aging"},
		{lane, errand.Settings{Aging: new(366 * 24 * time.Hour)}, "aging"},
		{lane, errand.Settings{Aging: new(time.Hour), Order: new(errand.Newest)}, "aging"},
	} {
		err := q.Configure(t.Context(), c.lane, c.s)
		if err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%+v: %v, want a fault of %s", c.s, err, c.fault)
		}
	}
	if got := must(q.Settings(t.Context())); len(got) != 0 {
		t.Errorf("settings are %+v", got)
	}
}
