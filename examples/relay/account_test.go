package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
)

// story is what a device and its server have done.
type story struct {
	tried, lost int   // the last number for which the device set out, and how many of these were not acknowledged
	device      []int // jobs that wait on the device
	server      []int // jobs on the server, in the order in which they came
	from        map[int]string
	done        bool // those on the server are done
	ran         []int
}

// The account finds each fault, and no other.
func TestAccount(t *testing.T) {
	for name, c := range map[string]struct {
		story
		want   string // the first line
		faults []string
	}{
		"all is well":        {story{tried: 3, server: []int{1, 2, 3}, done: true, ran: []int{1, 2, 3}}, "3 received once, 0 refused, 0 wait on a device, 0 passing; 0 attempts were made again", nil},
		"it waits":           {story{tried: 2, device: []int{2}, server: []int{1}}, "1 received once, 0 refused, 1 wait on a device, 0 passing; 0", nil},
		"it is on both":      {story{tried: 1, device: []int{1}, server: []int{1}}, "0 received once, 0 refused, 0 wait on a device, 1 passing; 0", nil},
		"not acknowledged":   {story{tried: 2, lost: 1, server: []int{1}}, "1 jobs made: 1 received once", nil},
		"again after a kill": {story{tried: 2, server: []int{1, 2}, done: true, ran: []int{1, 1, 2}}, "2 received once, 0 refused, 0 wait on a device, 0 passing; 1 attempts", nil},
		"lost":               {story{tried: 3, server: []int{1, 3}}, "2 received once", []string{"job 2 is lost"}},
		"doubled":            {story{tried: 2, server: []int{1, 2, 2}}, "1 received once", []string{"job 2 is on the server 2 times"}},
		"out of order":       {story{tried: 9, lost: 9, server: []int{9, 1}}, "2 received once", []string{"job 1 of group sensor-1 came to the server after job 9"}},
		"another group":      {story{tried: 9, lost: 9, server: []int{9, 2}}, "2 received once", nil},
		"no group":           {story{tried: 16, lost: 16, server: []int{16, 8}}, "2 received once", nil},
		"ran out of order":   {story{tried: 9, lost: 9, server: []int{1, 9}, ran: []int{9, 1}}, "2 received once", []string{"job 1 of group sensor-1 ran after job 9"}},
		"never ran":          {story{tried: 2, server: []int{1, 2}, done: true, ran: []int{1}}, "2 received once", []string{"device-01 2 is done on the server as "}},
		"nobody made it":     {story{tried: 1, server: []int{1, 2}}, "1 received once", []string{"job 2 is on the server, and nobody made it"}},
		"of another job":     {story{tried: 1, server: []int{1}, from: map[int]string{1: "4711"}}, "0 received once", []string{"and on the server it comes from 4711"}},
		"not to be taken":    {story{tried: 53, lost: 53, server: []int{53}}, "0 received once", []string{"job 53 is on the server, which does not take it"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := places{t.TempDir(), t.TempDir()}
			c.write(t, p)
			a, err := wholeAccount(t.Context(), p, []string{"device-01"})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(a.String(), c.want) {
				t.Errorf("the account is %s\nwant %s", a, c.want)
			}
			if len(a.faults) != len(c.faults) {
				t.Errorf("the faults are %q, want %q", a.faults, c.faults)
			}
			for _, fault := range c.faults {
				if !slices.ContainsFunc(a.faults, func(f string) bool { return strings.Contains(f, fault) }) {
					t.Errorf("no fault of %q says %q", a.faults, fault)
				}
			}
			one, err := deviceAccount(t.Context(), p, "device-01")
			if err != nil || one.made != a.made || len(one.faults) > len(a.faults) {
				t.Errorf("the account of the device alone is %v, %v", one, err)
			}
		})
	}
}

// write makes the files of a story.
func (s *story) write(t *testing.T, p places) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) *errand.Queue {
		q, err := errand.Open(t.Context(), path, &errand.Options{Logger: logger("test")})
		check(err)
		t.Cleanup(func() { check(q.Close()) })
		return q
	}
	device, server := open(p.deviceFile("device-01", "db")), open(p.serverFile("db"))
	notes, err := openNotes(p.deviceFile("device-01", "notes"))
	check(err)
	check(notes.add(fmt.Sprintf("try 1 %d", s.tried)))
	ids := map[int]string{}
	for n := 1; n <= s.tried-s.lost || slices.Contains(s.device, n); n++ {
		ids[n] = fmt.Sprintf("id-%d", n)
		if slices.Contains(s.device, n) {
			job := newJob(n)
			e, err := device.Enqueue(t.Context(), job.Args, job.Options)
			check(err)
			ids[n] = e.ID.String()
		}
		check(notes.add(fmt.Sprintf("made %d %s", n, ids[n])))
	}
	check(notes.close())
	there := map[int]errand.ID{}
	for _, n := range s.server {
		o := &errand.JobOptions{Origin: errand.Origin{Device: "device-01", ID: fmt.Sprintf("id-%d", n)}}
		if id := ids[n]; id != "" {
			o.Origin.ID = id
		}
		if id := s.from[n]; id != "" {
			o.Origin.ID = id
		}
		e, err := server.Enqueue(t.Context(), Reading{n}, o)
		check(err)
		there[n] = e.ID
	}
	if s.done {
		w := errand.NewWorker(server, nil)
		errand.Handle(w, func(context.Context, *errand.Job[Reading]) error { return nil })
		kit.Work(server, w, len(s.server))
	}
	if notes, err = openNotes(p.serverFile("notes")); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.ran {
		check(notes.add(fmt.Sprintf("ran %v device-01 %s %d", there[n], "id", n)))
	}
	check(notes.close())
}

// What was torn is no note, and is cut off when the notes go on.
func TestNotes_torn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	lines := func() (all []string) {
		t.Helper()
		if err := eachNote(path, func(words []string) error { all = append(all, strings.Join(words, " ")); return nil }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, torn := range []string{"", "t", "try 11 1", "try 11 12 .", "try 11 12\n", "\x00\x00\x00\x00", "\x00\x00 .\x00\n"} {
		if err := os.WriteFile(path, []byte("try 1 10 .\n"+torn), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lines(); !slices.Equal(got, []string{"try 1 10"}) {
			t.Errorf("with %q torn the notes are %q", torn, got)
		}
		n, err := openNotes(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.add("try 11 20", "made 1 id"); err != nil {
			t.Fatal(err)
		}
		if err := n.close(); err != nil {
			t.Fatal(err)
		}
		if got := lines(); !slices.Equal(got, []string{"try 1 10", "try 11 20", "made 1 id"}) {
			t.Errorf("with %q torn, and then two more, the notes are %q", torn, got)
		}
	}
}
