package main

import (
	"time"

	"github.com/spf13/pflag"

	queue "github.com/errandq/errand"
)

// orderFlags adds the flags of the order of a queue, and returns what takes them over
// into settings.
func orderFlags(flags *pflag.FlagSet) func(*queue.Settings) error {
	var order string
	var aging time.Duration
	flags.StringVar(&order, "order", "", "which ready job of a priority starts first: oldest, newest, or turns (groups in rotation)")
	flags.DurationVar(&aging, "aging", 0, "how much waiting makes up for a step of priority, as in 1h")
	return func(s *queue.Settings) error {
		if flags.Changed("aging") {
			s.Aging = &aging
		}
		if !flags.Changed("order") {
			return nil
		}
		s.Order = new(queue.Order)
		return s.Order.UnmarshalText([]byte(order))
	}
}

// orderCells returns what a list shows of the order of a queue.
func orderCells(s *queue.Settings) []cell {
	order, aging := "-", "-"
	if s.Order != nil {
		order = s.Order.String()
	}
	if s.Aging != nil {
		aging = s.Aging.String()
	}
	return []cell{text(order), text(aging)}
}
