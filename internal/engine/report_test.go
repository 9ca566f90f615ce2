package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

func TestReport_LateOutcomeNamesItsJob(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.handle("k", untilClosed(release))
		r.start()
		id := r.enqueue("k", 1)[0]
		r.takeOver(1)
		close(release) // before a heartbeat can tell
		synctest.Wait()
		lines := r.logs.with("too late")
		if len(lines) != 1 || !strings.Contains(lines[0], "job="+id.String()) || !strings.Contains(lines[0], "outcome=done") {
			t.Errorf("job %v: the log says %q", id, lines)
		}
	})
}
