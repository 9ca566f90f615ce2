package policy_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/policy"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// takeAll takes until the budget is empty and returns how often.
func takeAll(b *policy.Budget, now time.Time) (n int) {
	for {
		if _, ok := b.Take(now, false); !ok {
			return n
		}
		n++
	}
}

func TestBudget_DefaultsOfTheSDKs(t *testing.T) {
	b := policy.NewBudget(nil)
	want := policy.BudgetOptions{Capacity: 500, RetryCost: 5, TimeoutCost: 10, FirstRefund: 1, RetriesPerSecond: 1}
	if got := b.Options(); got != want {
		t.Errorf("options %+v, want %+v", got, want)
	}
	if n := takeAll(b, epoch); n != 100 {
		t.Errorf("%d retries out of a full bucket, want 500 / 5", n)
	}
	b = policy.NewBudget(nil)
	for n := 0; ; n++ {
		if _, ok := b.Take(epoch, true); !ok {
			if n != 50 {
				t.Errorf("%d retries after timeouts, want 500 / 10", n)
			}
			break
		}
	}
}

func TestBudget_PaysIn(t *testing.T) {
	b := policy.NewBudget(nil)
	cost, _ := b.Take(epoch, true)
	takeAll(b, epoch)
	for range 4 {
		b.Succeeded(0)
	}
	if _, ok := b.Take(epoch, false); ok {
		t.Error("a retry for 4 tokens")
	}
	b.Succeeded(0)
	if _, ok := b.Take(epoch, false); !ok {
		t.Error("no retry for 5 tokens, one for each success")
	}
	b.Succeeded(cost)
	if got := b.Tokens(epoch); got != 10 {
		t.Errorf("%v tokens after the success of a retry that cost 10", got)
	}
	b.Return(cost)
	if got := b.Tokens(epoch); got != 20 {
		t.Errorf("%v tokens after the return of 10", got)
	}
	for range 1000 {
		b.Succeeded(0)
	}
	if got := b.Tokens(epoch); got != 500 {
		t.Errorf("%v tokens, more or less than the capacity", got)
	}
}

// A kind that always fails goes on at the rate of the refill.
func TestBudget_RefillsByTime(t *testing.T) {
	b := policy.NewBudget(&policy.BudgetOptions{RetriesPerSecond: 2})
	now, started := epoch, 0
	takeAll(b, now)
	for now.Before(epoch.Add(10 * time.Second)) {
		at, ok := b.Ready(now, false)
		if !ok || !at.After(now) {
			t.Fatalf("empty, and ready at %v %v", at, ok)
		}
		if _, ok := b.Take(at.Add(-time.Millisecond), false); ok {
			t.Fatal("was ready before the time given")
		}
		now = at
		if _, ok := b.Take(now, false); !ok {
			t.Fatalf("not ready at the time given, with %v tokens", b.Tokens(now))
		}
		started++
	}
	if started != 20 {
		t.Errorf("%d retries in 10 s, want 20", started)
	}
}

func TestBudget_WithoutRefill(t *testing.T) {
	b := policy.NewBudget(&policy.BudgetOptions{Capacity: 3, RetriesPerSecond: -1, FirstRefund: -1})
	if n := takeAll(b, epoch); n != 1 {
		t.Errorf("%d retries although the cost is limited to the capacity", n)
	}
	b.Succeeded(0)
	if at, ok := b.Ready(epoch.Add(time.Hour), false); ok {
		t.Errorf("ready at %v", at)
	}
}

func TestBudget_StaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := policy.BudgetOptions{Capacity: rapid.Float64Range(1, 100).Draw(t, "capacity")}
		b, now := policy.NewBudget(&o), epoch
		var costs []policy.Cost
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if got := b.Tokens(now); got < 0 || got > o.Capacity {
					t.Fatalf("%v tokens", got)
				}
			},
			"take": func(t *rapid.T) {
				timeout := rapid.Bool().Draw(t, "timeout")
				at, _ := b.Ready(now, timeout)
				cost, ok := b.Take(now, timeout)
				if ok != at.Equal(now) || ok != (cost > 0) {
					t.Fatalf("ready at %v, took %v %v at %v", at, cost, ok, now)
				}
				if ok {
					costs = append(costs, cost)
				}
			},
			"succeed": func(*rapid.T) {
				if len(costs) > 0 {
					b.Succeeded(costs[0])
					costs = costs[1:]
				}
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(-1e9, 5e9).Draw(t, "time")))
			},
		})
	})
}
