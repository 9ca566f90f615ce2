package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
)

// wait prints what a gate says once the first answers are there.
func wait(g errand.Gate) {
	for {
		open, reason, changed := g.State()
		switch {
		case open:
			fmt.Println("open")
			return
		case !strings.HasSuffix(reason, "yet"):
			fmt.Println("closed:", reason)
			return
		}
		<-changed
	}
}

// A server that is asked for its own words is told from a captive portal.
func ExampleHTTP() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "fleet is online")
	}))
	defer server.Close()
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "<html>Welcome! Please log in")
	}))
	defer portal.Close()

	for _, url := range []string{server.URL, portal.URL} {
		online, err := gate.HTTP(url, &gate.HTTPOptions{Body: "fleet is online"})
		if err != nil {
			fmt.Println(err)
			return
		}
		wait(online)
	}
	// Output:
	// open
	// closed: captive portal: an answer with another body
}

// The server sends back the nonce of the request.
func ExampleHTTP_nonce() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Nonce", r.Header.Get("Nonce"))
	}))
	defer server.Close()

	online, err := gate.HTTP(server.URL, &gate.HTTPOptions{Nonce: "Nonce"})
	if err != nil {
		fmt.Println(err)
		return
	}
	wait(online)
	// Output: open
}

func ExampleHTTP_refused() {
	_, err := gate.HTTP("https://example.org/", &gate.HTTPOptions{Status: http.StatusOK})
	fmt.Println(err)
	fmt.Println(errors.Is(err, errand.ErrInvalid))
	// Output:
	// errand: status 200: must be 204 unless body or nonce is set: a captive portal may answer with any other
	// true
}

func ExampleDial() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	broker, err := gate.Dial(server.Listener.Addr().String(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	wait(broker)
	// Output: open
}

func ExampleDiskFree() {
	space, err := gate.DiskFree(".", 1, nil) // 64<<20 for 64 MiB
	if err != nil {
		fmt.Println(err)
		return
	}
	wait(space)
	// Output: open
}

// The two windows share the day: at any time one of them is open.
func ExampleWindow() {
	night, err := gate.Window("22:00-06:00", "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	day, err := gate.Window("06:00-22:00", "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	either, err := gate.Any(night, day)
	if err != nil {
		fmt.Println(err)
		return
	}
	wait(either)
	// Output: open
}

// On a board without a clock battery a window counts once the clock is right.
func ExampleClockPlausible() {
	night, err := gate.Window("22:00-06:00", "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	sending, err := gate.All(gate.ClockPlausible(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)), night)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, reason, _ := sending.State()
	_, before, _ := strings.Cut(reason, " UTC, ")
	fmt.Println("closed: the clock shows a time", before)
	// Output: closed: the clock shows a time before 2999-01-01 00:00:00
}

// Any function can be a gate.
func ExampleNewCheck() {
	level := 7 // read from the charger
	battery, err := gate.NewCheck("the charger", func(context.Context) error {
		if level < 20 {
			return fmt.Errorf("battery at %d %%", level)
		}
		return nil
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	wait(battery)
	// Output: closed: battery at 7 %
}

func ExampleNot() {
	metered := new(errand.Switch) // open while the link is metered
	cheap, err := gate.Not(metered, "on a metered link")
	if err != nil {
		fmt.Println(err)
		return
	}
	wait(cheap)
	metered.Close("the link is free")
	wait(cheap)
	// Output:
	// closed: on a metered link
	// open
}
