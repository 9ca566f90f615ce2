package dashboard_test

import (
	"strings"
	"testing"

	"github.com/errandq/errand"
)

// The page of a job says where it came from, and leads to the jobs of that device.
func TestJob_origin(t *testing.T) {
	q := open(t)
	id := add(t, q, mail{"a"}, &errand.JobOptions{Origin: errand.Origin{Device: "pi", ID: "<7>"}})
	other := add(t, q, mail{"b"}, &errand.JobOptions{Origin: errand.Origin{Device: "pi", ID: "8"}})
	plain := add(t, q, mail{"c"}, nil)
	h := admin(q)
	if _, text := get(h, "/job/"+id.String()); !strings.Contains(text, `Came from</dt><dd class="text"><a href="../jobs?origin=pi">pi</a>, where it is <a href="../jobs?origin=pi%2C%3C7%3E">&lt;7&gt;</a>`) {
		t.Errorf("the page of a job that was passed on:\n%s", text)
	}
	if _, text := get(h, "/job/"+plain.String()); strings.Contains(text, "Came from") {
		t.Error("a job that was not passed on came from somewhere")
	}
	for path, want := range map[string]struct {
		jobs []errand.ID
		said string
	}{
		"?origin=pi":                          {[]errand.ID{id, other}, "Jobs that came from <bdi>pi</bdi>"},
		"?origin=pi%2C%3C7%3E":                {[]errand.ID{id}, `name="origin" value="pi,&lt;7&gt;"`},
		"?origin=a+b":                         {nil, "origin.device"},
		"?origin=pi&parent=" + plain.String(): {nil, "must be empty if tag or parent is set"},
	} {
		_, text := get(h, "/jobs"+path)
		n := 0
		for _, j := range []errand.ID{id, other, plain} {
			if strings.Contains(text, `aria-label="Mark `+j.String()) {
				n++
			}
		}
		for _, j := range want.jobs {
			if !strings.Contains(text, `aria-label="Mark `+j.String()) {
				t.Errorf("jobs%s lacks job %v", path, j)
			}
		}
		if n != len(want.jobs) || !strings.Contains(text, want.said) {
			t.Errorf("jobs%s has %d jobs, want %d and %q:\n%s", path, n, len(want.jobs), want.said, text)
		}
	}
}
