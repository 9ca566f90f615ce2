package badnet

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// send sends a request to the good end, and reads its answer. length is what it says of its body.
func (n *Network) send(r *http.Request, body []byte, length int) reply {
	n.carry(len(body))
	if n.ctx.Err() != nil {
		return reply{err: n.ctx.Err()}
	}
	out := r.Clone(n.ctx)
	out.Body, out.ContentLength, out.GetBody = http.NoBody, int64(length), nil
	if length > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	a, err := n.next.RoundTrip(out)
	n.pass()
	if err != nil {
		return reply{err: err}
	}
	got, err := io.ReadAll(a.Body)
	if err = errors.Join(err, a.Body.Close()); err != nil {
		return reply{err: err}
	}
	n.carry(len(got))
	return reply{answer: a, body: got}
}

// carry waits until the line has carried so many bytes, after those that it was given before.
func (n *Network) carry(size int) {
	n.bytes.Add(int64(size))
	n.mu.Lock()
	if n.weather.BytesPerSecond == 0 {
		n.mu.Unlock()
		return
	}
	now := time.Now()
	if n.free.Before(now) {
		n.free = now
	}
	n.free = n.free.Add(time.Duration(int64(size) * int64(time.Second) / n.weather.BytesPerSecond))
	left := n.free.Sub(now)
	n.mu.Unlock()
	n.wait(left, nil)
}

// hold returns what waits until so many requests have been answered from now on, or for most.
func (n *Network) hold(behind int, most time.Duration) (wait func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &held{until: n.answered + behind, over: make(chan struct{})}
	n.held = append(n.held, h)
	return func() { n.wait(most, h.over) }
}

// pass says that a request has been answered, or has failed.
func (n *Network) pass() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answered++
	n.held = slices.DeleteFunc(n.held, func(h *held) bool {
		if h.until <= n.answered {
			close(h.over)
		}
		return h.until <= n.answered
	})
}

// wait waits for d, or until over is closed or the network is.
func (n *Network) wait(d time.Duration, over <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-over:
	case <-n.ctx.Done():
	}
}

// own is an answer that no server has given.
func own(r *http.Request, f Fault) *http.Response {
	status := map[Fault]int{
		Portal: http.StatusOK, Redirect: http.StatusFound, TooLarge: http.StatusRequestEntityTooLarge,
		TooMany: http.StatusTooManyRequests, BadGateway: http.StatusBadGateway,
	}[f]
	page := "<!DOCTYPE html><title>" + http.StatusText(status) + "</title><p>Log in to this network.\n"
	a := &http.Response{
		StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader(page)), Request: r,
	}
	setLength(a, len(page))
	switch f {
	case Redirect:
		a.Header.Set("Location", "http://portal.example/login")
	case TooMany, BadGateway:
		a.Header.Set("Retry-After", "1")
	}
	return a
}

func setLength(a *http.Response, n int) {
	a.ContentLength = int64(n)
	a.Header.Set("Content-Length", strconv.Itoa(n))
}
