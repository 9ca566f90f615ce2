package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
)

// TestMain makes of the test binary what the command is: a program that starts
// itself to measure.
func TestMain(m *testing.M) {
	if in := os.Getenv(childVar); in != "" {
		exit(child(context.Background(), in, os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func TestRun_measuresEachWorkloadOfEachSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	var out bytes.Buffer
	all := strings.Join(namesOf(systems), ",")
	if err := run(t.Context(), []string{"-json", "-rounds", "1", "-scale", "0.002", "-dir", t.TempDir(), "-systems", all}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	got := map[side]bool{}
	for dec := json.NewDecoder(&out); dec.More(); {
		var s sample
		if err := dec.Decode(&s); err != nil {
			t.Fatal(err)
		}
		if s.Round != 1 || !strings.HasPrefix(s.Durability, "WAL ") || len(s.Figures) == 0 || s.Seconds <= 0 {
			t.Errorf("sample %+v: round, durability, figures or seconds are missing", s)
		}
		for name, v := range s.Figures {
			if v < 0 || v != v {
				t.Errorf("%s, %s: %s is %v", s.System, s.Workload, name, v)
			}
			got[side{s.System, s.Workload, name}] = true
		}
		got[side{s.System, s.Workload, ""}] = true
	}
	for _, w := range workloads {
		for _, e := range fitting(systems, w) {
			if !got[side{e.name, w.name, ""}] {
				t.Errorf("%s was not measured at %s", e.name, w.name)
			}
		}
	}
	for _, x := range targets {
		if !got[x.num] || x.den != nil && !got[*x.den] {
			t.Errorf("target %q: its figures were not measured", x.about)
		}
	}
}

func TestRun_checkPrintsTargetsAndNamesThoseMissed(t *testing.T) {
	defer func(saved []target) { targets = saved }(targets)
	easy := over(side{"raw", "enqueue-1", figRate}, side{"floor", "enqueue-1", figRate}, 0.0001, "easy")
	hard := over(side{"raw", "enqueue-1", figRate}, side{"floor", "enqueue-1", figRate}, 1e9, "hard")
	elsewhere := atMost("idle", figBytes, 0, "bytes", "elsewhere")
	targets = []target{easy, hard, elsewhere}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-check", "-rounds", "1", "-scale", "0.002", "-dir", t.TempDir(), "-systems", "raw,floor", "-workloads", "enqueue-1"}, &out, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "hard") || strings.Contains(err.Error(), "easy") {
		t.Errorf("error %v: want one that names the hard target alone", err)
	}
	for _, want := range []string{"easy", "hard", "MISSED", "enqueue-1", "WAL FULL"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the output:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "elsewhere") {
		t.Errorf("a target that was not asked for is in the output:\n%s", &out)
	}
}

func TestParse_refuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-systems none", `system "none"`},
		{"-workloads none", `workload "none"`},
		{"-rounds 0", "rounds 0"},
		{"-scale 0", "scale 0"},
		{"-scale NaN", "scale NaN"},
		{"more", `"more"`},
	} {
		if _, err := parse(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v: want an error with %s", c.args, err, c.want)
		}
	}
}

func TestParse_choosesGroups(t *testing.T) {
	o, err := parse([]string{"-workloads", "drain,drain:20k,open", "-systems", "goqite"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range o.workloads {
		names = append(names, w.name)
	}
	if got := strings.Join(names, " "); got != "drain:20k drain:200k open" {
		t.Errorf("workloads %s", got)
	}
	if len(o.systems) != 1 || o.systems[0].name != "goqite" {
		t.Errorf("systems %v", o.systems)
	}
	if o, err = parse(nil, io.Discard); err != nil || len(o.systems) != len(systems)-2 {
		t.Errorf("by default there are %d systems, %v: want all but the two extra ones", len(o.systems), err)
	}
}
