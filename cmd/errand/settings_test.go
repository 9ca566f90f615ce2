package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

// The flags of a shared throttle set it, and the listing shows it.
func TestQueuesSet_Starts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := queue.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	set := func(args ...string) (string, error) {
		var b bytes.Buffer
		root := newRoot(newTool(nil, &b, &b))
		root.SetArgs(append([]string{"queues", "set", path}, args...))
		err := root.ExecuteContext(t.Context())
		return b.String(), err
	}
	for _, step := range []struct {
		args  []string
		shown string
		want  queue.Settings
	}{
		{[]string{"web", "--starts", "10"}, "10 in 1s\n", queue.Settings{Starts: new(10)}},
		{[]string{"web", "--per", "1m", "--burst", "3"}, "10 in 1m0s, 3 at once\n", queue.Settings{Starts: new(10), StartsPer: new(time.Minute), StartsBurst: new(3)}},
		{[]string{"web", "--starts", "0", "--per", "0", "--burst", "0"}, "nothing is set\n", queue.Settings{}},
	} {
		text, err := set(step.args...)
		if err != nil || !strings.HasSuffix(text, step.shown) {
			t.Errorf("%v shows %q, %v: want %q at the end", step.args, text, err, step.shown)
		}
		all, err := q.Settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if step.want.Starts == nil {
			if len(all) > 0 {
				t.Errorf("%v leaves %v", step.args, all)
			}
			continue
		}
		if len(all) != 1 || startsText(&all[0].Settings) != startsText(&step.want) {
			t.Errorf("%v sets %v", step.args, all)
		}
	}
	if _, err := set("--starts", "10"); err == nil {
		t.Error("a throttle of the whole file was set")
	}
}
