package relay

import (
	"testing"
	"time"
)

// Ten thousand requests that come in one second come back evenly, at the rate at which requests end.
//
//errand:shows a crowd of devices | | Ten thousand devices that come in one second are told to come back evenly
func TestCrowd(t *testing.T) {
	const devices, most, each = 10_000, 16, 160 * time.Millisecond // so one ends every 10 ms
	start := time.Unix(1_800_000_000, 0)
	c := crowd{most: most}
	var leave []func(time.Time)
	places := map[int]int{} // by seconds
	for i := range devices {
		now := start.Add(time.Duration(i) * time.Second / devices)
		done, retry := c.enter(now)
		if done != nil {
			leave = append(leave, done)
			continue
		}
		places[int(now.Add(time.Duration(retry)*time.Second).Sub(start)/time.Second)]++
	}
	if len(leave) != most {
		t.Fatalf("%d are in work", len(leave))
	}
	last, fullest := 0, 0
	for second, n := range places {
		last, fullest = max(last, second), max(fullest, n)
	}
	if last < 99 || last > 101 || fullest > 110 {
		t.Errorf("the last of %d comes after %d s, and %d in one second", devices-most, last, fullest)
	}
	// The rate is that of the requests that have ended.
	for range 200 {
		for i := range leave {
			leave[i](start.Add(10 * each))
			leave[i], _ = c.enter(start)
		}
	}
	if got := c.apart; got < 9*each/most || got > 10*each/most {
		t.Errorf("requests that take %v, %d at a time, end every %v", 10*each, most, got)
	}
}

// Nobody is told to wait for longer than mostWait, however many come.
func TestCrowd_most(t *testing.T) {
	c := crowd{most: 1}
	now := time.Unix(1_800_000_000, 0)
	c.enter(now)
	longest := 0
	for range 300_000 {
		_, retry := c.enter(now)
		longest = max(longest, retry)
	}
	if most := int(mostWait/time.Second) + 1; longest < most-1 || longest > most {
		t.Errorf("the longest wait is %d s", longest)
	}
	if _, retry := c.enter(now.Add(time.Hour)); retry != 1 {
		t.Errorf("retry after %d when the line is gone", retry)
	}
}

// A slow request alone makes no crowd slower, and when a crowd is gone so is its line.
func TestCrowd_over(t *testing.T) {
	c := crowd{most: 2}
	now := time.Unix(1_800_000_000, 0)
	for range 100 {
		slow, _ := c.enter(now)
		slow(now.Add(time.Minute))
	}
	for _, want := range []int{10, 10} { // a thousand places of firstApart
		first, _ := c.enter(now)
		second, _ := c.enter(now)
		last := 0
		for range 1000 {
			_, last = c.enter(now)
		}
		if last != want {
			t.Errorf("the last one comes in %d s, want %d", last, want)
		}
		first(now.Add(2 * firstApart))
		second(now.Add(2 * firstApart))
	}
}
