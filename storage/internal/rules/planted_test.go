//go:build planted

package rules

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// planted are faults, each as what a file says and what it would say with the fault, of which the
// other tests of this package have to find each.
var planted = map[string][][2]string{
	"group.go": {
		{"if group == \"\" {", "if false {"},
		{"all[storage.Lane{Queue: queue}]", "all[storage.Lane{Kind: queue}]"},
		{"case next == \"\" && (after == \"\" || mark == RegroupBegun):", "case next == \"\":"},
		{"case next == \"\" && (after == \"\" || mark == RegroupBegun):", "case next == \"\" && mark == RegroupBegun:"},
		{"case next == \"\" && (after == \"\" || mark == RegroupBegun):", "case next == \"\" && after == \"\":"},
		{"case next != \"\" && after == \"\" && mark == RegroupDue:", "case after == \"\" && mark == RegroupBegun:"},
		{"case next != \"\" && after == \"\" && mark == RegroupDue:", "case next != \"\" && mark == RegroupDue:"},
		{"max(set[storage.SettingGroupLimit], 1)", "set[storage.SettingGroupLimit]"},
		{"limit > 1 || set", "set"},
		{"r.Limit == 1 || s !=", "s !="},
		{"to == storage.Dead && !r.Pass", "to == storage.Dead"},
		{"if stays || r.Needs(to)", "if r.Needs(to)"},
		{"case from == storage.Blocked:", "case false:"},
		{"&& (moved || put):", "&& put:"},
		{"&& (moved || put):", "&& moved:"},
		{"case !moved && (role", "case (role"},
		{"(role == Placed || to == storage.Scheduled)", "role == Placed"},
		{"return g.Taken > 0 || g.Dead && !g.Rule.Pass, 1", "return g.Taken > 0, 1"},
		{"return g.Taken > 0 || g.Dead && !g.Rule.Pass, 1", "return g.Dead && !g.Rule.Pass, 1"},
		{"return g.Taken > 0, g.Rule.Limit", "return false, g.Rule.Limit"},
		{"return g.Taken > 0, g.Rule.Limit", "return g.Taken > 0, 1"},
		{"return false, max(g.Rule.Limit-g.Taken, 1)", "return false, 1"},
		{"if g.Dead && g.Rule.Pass {\n\t\td.Pass", "if g.Rule.Pass {\n\t\td.Pass"},
		{"if !g.Rule.Turns {", "if true {"},
		{"if !g.Rule.Turns {", "if false {"},
		{"if anew || g.Taken > g.Rule.Limit {\n\t\tg.leave", "if anew {\n\t\tg.leave"},
		{"if anew || g.Taken > g.Rule.Limit {\n\t\tg.leave", "if g.Taken > g.Rule.Limit {\n\t\tg.leave"},
		{"max(g.Rule.Limit-g.Taken, 0)", "g.Rule.Limit"},
		{"case m.Role == Blocks && g.Rule.Pass, runs &&", "case runs &&"},
		{"g.Rule.Pass, runs && m.State != storage.Running:", "g.Rule.Pass:"},
		{"case m.State == storage.Running && !runs, next", "case next"},
		{"next == 0 || m.Job < next", "next == 0"},
		{"if m.Role == Placed && m.Job != next && m.State != storage.Running", "if m.Role == Placed && m.Job != next"},
		{"if m.Role == Placed && m.Job != next", "if m.Job != next"},
		{"if len(g.Waiting) > 0 && next == g.Waiting[0]", "if len(g.Waiting) > 0"},
		{"d.Leave = append(d.Leave, m.Job)\n\t\t\tg.Taken--", "d.Leave = append(d.Leave, m.Job)"},
		{"cmp.Compare(b.Job, a.Job)", "cmp.Compare(a.Job, b.Job)"},
		{"case m.State == storage.Ready:", "default:"},
		{"if g.Dead || g.Taken >= g.Rule.Limit {", "if g.Taken >= g.Rule.Limit {"},
		{"if g.Dead || g.Taken >= g.Rule.Limit {", "if g.Dead {"},
		{"g.Dead, pass = false, true", "pass = true"},
		{"g.Dead, pass = false, true", "g.Dead = false"},
		{"if g.Dead && g.Rule.Pass {\n\t\tg.Dead, pass", "if g.Dead {\n\t\tg.Dead, pass"},
		{"g.Taken >= g.Rule.Limit {", "g.Taken > g.Rule.Limit {"},
		{"if len(g.Waiting) > 0 || g.More {", "if g.More {"},
		{"if len(g.Waiting) > 0 || g.More {", "if len(g.Waiting) > 0 {"},
		{"g.Taken++\n\treturn Placed", "return Placed"},
		{"g.Members = append(g.Members, m)\n\t\tg.Taken++", "g.Members = append(g.Members, m)"},
		{"return job == m.Job", "return job != m.Job"},
		{"return o.Job == m.Job", "return o.Job != m.Job"},
		{"g.Taken--\n\t\t} else", "} else"},
		{"g.Dead = slices.ContainsFunc(g.Members, func(o Member) bool { return o.Role == Blocks })", "g.Dead = false"},
		{"g.Dead = slices.ContainsFunc(g.Members, func(o Member) bool { return o.Role == Blocks })", "g.Dead = len(g.Members) > 0"},
		{"if i < len(g.Waiting) || !g.More {", "if i < len(g.Waiting) {"},
		{"if i < len(g.Waiting) || !g.More {", "if !g.More {"},
		{"if i < len(g.Waiting) || !g.More {", "if true {"},
		{"m.Job)\n\t\t}\n\tcase Placed:\n\t\tg.Members = append(g.Members, m)", "m.Job)\n\t\t}\n\tcase Placed:"},
		{"g.Dead = true", ""},
		{"g.Taken == 1 && !g.Dead", "g.Taken == 1"},
		{"g.Taken == 1 && !g.Dead", "!g.Dead"},
		{"g.Waiting[0] > key", "true"},
		{"slices.BinarySearch(g.Waiting, l.Job); !ok", "slices.BinarySearch(g.Waiting, l.Job); !ok && false"},
		{"return !slices.ContainsFunc(leave, func(job int64) bool { return !members[job] }) &&", "return true &&"},
		{"return !members[m.Job]", "return false"},
		{"LetIn{job, at, Placed}", "LetIn{job, at, NoRole}"},
		{"LetIn{next, at, Placed}", "LetIn{next, at, NoRole}"},
	},
	"rows.go": {
		{"if c.changed {", "if true {"},
		{"LetIn{Job: heir}", "LetIn{Job: heir, As: Placed}"},
		{"if heir := k.release(job, now, kept); heir != 0 {", "if heir := k.release(job, now, kept); true {"},
		{"g.Settle(anew, at, d)", "g.Settle(anew, 0, d)"},
		{"g.Settle(anew, at, d)", "g.Settle(false, at, d)"},
	},
	"key.go": {
		{"k.Holder.Job != job || !k.Holder.windowed()", "!k.Holder.windowed()"},
		{"k.Holder.Job != job || !k.Holder.windowed()", "k.Holder.Job != job"},
		{"if k.Job == 0 {", "if false {"},
		{"time.UnixMicro(k.Created), k.Salt, k.Job", "time.UnixMicro(k.Created), 0, k.Job"},
		{"return k.Until > 0 && k.Until < Forever", "return k.Until > 0"},
		{"return k.Until > 0 && k.Until < Forever", "return k.Until < Forever"},
		{"return !k.Live && k.Holder.renew(now)", "return k.Holder.renew(now)"},
		{"if !k.windowed() || began", "if began"},
		{"began <= now", "began < now"},
		{"|| k.Until <= began", ""},
		{"k.Until+now-began, now", "now, now"},
		{"k.Until+now-began, now", "k.Until+now-began, k.Since"},
		{"\t\tk.Holder.renew(now) // as", "\t\t// as"},
		{"if !k.Dated {", "if true {"},
		{"k.Holder.Job == 0 || !k.Live &&", "!k.Live &&"},
		{"!k.Live && k.Holder.windowed() && k.Holder.Until <= now", "k.Holder.windowed() && k.Holder.Until <= now"},
		{"!k.Live && k.Holder.windowed() && k.Holder.Until <= now", "!k.Live && k.Holder.Until <= now"},
		{"!k.Live && k.Holder.windowed() && k.Holder.Until <= now", "!k.Live && k.Holder.windowed() && k.Holder.Until < now"},
		{"return k.Holder.Until > now && !k.Live && !k.Kept", "return !k.Live && !k.Kept"},
		{"return k.Holder.Until > now && !k.Live && !k.Kept", "return k.Holder.Until > now && !k.Kept"},
		{"return k.Holder.Until > now && !k.Live && !k.Kept", "return k.Holder.Until > now && !k.Live"},
		{"if k.Behind.Job != 0 {\n\t\treturn k.Behind", "if false {\n\t\treturn k.Behind"},
		{"w == nil || w.State == storage.Running ||", "w == nil ||"},
		{"c.Mode == storage.After && w.Attempt > 0", "w.Attempt > 0"},
		{"c.Mode == storage.After && w.Attempt > 0", "c.Mode == storage.After"},
		{"c.Mode == storage.After && w.Attempt > 0", "false"},
		{"case c != nil && c.Mode == storage.Fail:", "case false:"},
		{"case !k.Live && k.Holder.windowed():", "case !k.Live:"},
		{"case !k.Live && k.Holder.windowed():", "case k.Holder.windowed():"},
		{"k.Live && k.Holder.Until != Forever && j.Group", "k.Live && j.Group"},
		{"k.Live && k.Holder.Until != Forever && j.Group", "k.Holder.Until != Forever && j.Group"},
		{"k.Holder.Until != Forever && j.Group == \"\"", "k.Holder.Until != Forever"},
		{"w := k.changes(c)", "w := k.Waiting"},
		{"(w != nil) == (old != nil) &&", ""},
		{"bytes.Equal(old, w.Args)", "(bytes.Equal(old, w.Args) || true)"},
		{"append([]byte{}, w.Args...)", "w.Args"},
		{"c.Unmerged == nil {", "true {"},
		{"c.changed = k.renew(at)", "k.renew(at)"},
		{"case k.Holder.Job == is.Job:", "case false:"},
		{"case k.Holder.Job == is.Job: // its own, which outlives it\n\t\t\tc.Verdict = Succeed\n\t\t\treturn c", "case k.Holder.Job == is.Job:\n\t\t\tc.Verdict = Succeed"},
		{"if c.Verdict >= Follow && k.Holder.Until > max(due, at) {", "if c.Verdict > Follow && k.Holder.Until > max(due, at) {"},
		{"if c.Verdict >= Follow && k.Holder.Until > max(due, at) {", "if k.Holder.Until > max(due, at) {"},
		{"if c.Verdict >= Follow && k.Holder.Until > max(due, at) {", "if c.Verdict >= Follow {"},
		{"if c.Verdict >= Follow && k.Holder.Until > max(due, at) {", "if c.Verdict >= Follow && k.Holder.Until > due {"},
		{"if c.Verdict >= Follow && k.Holder.Until > max(due, at) {", "if c.Verdict >= Follow && k.Holder.Until > at {"},
		{"c.Due, due = k.Holder.Until, k.Holder.Until", "c.Due = k.Holder.Until"},
		{"is.Until = Until(j, is.Created, due)", ""},
		{"c.ID, c.Gone = k.Holder.ID(), k.gone(at)", "c.ID = k.Holder.ID()"},
		{"c.ID = k.Last().ID()", "c.ID = k.Holder.ID()"},
		{"k.Behind, c.changed = is, true", "c.changed = true"},
		{"k.Behind, c.changed = is, true", "k.Behind = is"},
		{"k.Holder, k.Live, k.Kept, c.changed = is, true, false, true", "k.Holder, k.Live, c.changed = is, true, true"},
		{"k.Holder, k.Live, k.Kept, c.changed = is, true, false, true", "k.Holder, k.Kept, c.changed = is, false, true"},
		{"k.Holder, k.Live, k.Kept, c.changed = is, true, false, true", "k.Holder, k.Live, k.Kept = is, true, false"},
		{"if c.Verdict != Refuse {", "if true {"},
		{"Replaced: c.Verdict == Change, ", ""},
		{"if d.ID.Key() >= first {", "if d.ID.Key() > first {"},
		{"if d.ID.Key() >= first {", "if true {"},
		{"if errors.As(err, &held) {", "if errors.As(err, &held) && false {"},
		{"ID: held.ID, Duplicate: true, Gone", "ID: held.ID, Gone"},
		{"Duplicate: true, Gone: held.Gone}", "Duplicate: true}"},
		{"return answer, err", "return answer, nil"},
		{"return answer, err", "return storage.Enqueued{}, err"},
		{"w.State == storage.Scheduled && w.Attempt > 0", "w.Attempt > 0"},
		{"w.State == storage.Scheduled && w.Attempt > 0", "w.State == storage.Scheduled"},
		{"due = min(due, at)", "due = at"},
		{"is.Retry, is.Crashes, is.Snoozes = 0, 0, 0", ""},
		{"if is.Due == w.Due {", "if false {"},
		{"max(is.Due-at, 0)", "is.Due-at"},
		{"if is.State = storage.Ready; is.Due > at {", "if is.Due > at {"},
		{"if is.State = storage.Ready; is.Due > at {", "if is.State = storage.Ready; true {"},
		{"case j.UniqueScope == storage.UniqueForever:", "case false:"},
		{"max(created, due) + Ceil", "created + Ceil"},
		{"max(created, due) + Ceil", "due + Ceil"},
		{"case k.Behind.Job == job:", "case false:"},
		{"case k.Holder.Job != job:", "case false:"},
		{"k.Holder, k.Behind = k.Behind, Keeper{}", "k.Holder = k.Behind"},
		{"return k.Holder.Job\n\tcase k.Holder.Until", "return 0\n\tcase k.Holder.Until"},
		{"case k.Holder.Until > now:", "case k.Holder.Until >= now:"},
		{"k.Live, k.Kept = false, kept", "k.Live = false"},
		{"k.Live, k.Kept = false, kept", "k.Kept = kept"},
		{"default:\n\t\tk.Holder = Keeper{}", "default:"},
		{"if k.Live {\n\t\tk.Holder.Until = 0", "if true {\n\t\tk.Holder.Until = 0"},
		{"if k.Live {\n\t\tk.Holder.Until = 0", "if false {\n\t\tk.Holder.Until = 0"},
	},
	"rules.go": {
		{"case j.Conflict != nil && j.Conflict.Mode == storage.Debounce:", "case false:"},
		{"case j.Conflict != nil && j.Conflict.Mode == storage.Debounce:", "case j.Conflict != nil:"},
		{"at = Due(now.Add(j.Conflict.Quiet))\n\t\treturn storage.Scheduled, at, at - created", "at = Due(now.Add(j.Conflict.Quiet))\n\t\treturn storage.Scheduled, at, 0"},
		{"at = Due(now.Add(j.Conflict.Quiet))\n\t\treturn storage.Scheduled", "at = Due(now.Add(j.Conflict.Quiet))\n\t\treturn storage.Ready"},
		{"case j.Delay > 0:", "case j.Delay != 0:"},
		{"at = Due(now.Add(j.Delay))\n\t\treturn storage.Scheduled, at, at - created", "at = Due(now.Add(j.Delay))\n\t\treturn storage.Scheduled, at, 0"},
		{"at = Due(now.Add(j.Delay))\n\t\treturn storage.Scheduled", "at = Due(now.Add(j.Delay))\n\t\treturn storage.Ready"},
		{"case j.DueAt.After(now):", "case false:"},
		{"case j.DueAt.After(now):", "case !j.DueAt.Before(now):"},
		{"case !j.DueAt.IsZero():", "case false:"},
		{"return storage.Ready, created, 0", "return storage.Ready, Due(now), 0"},
		{"if t.Nanosecond()%1000 != 0 {", "if false {"},
		{"if t.Nanosecond()%1000 != 0 {", "if true {"},
		{"if d > time.Duration(us)*time.Microsecond {", "if false {"},
		{"if d > time.Duration(us)*time.Microsecond {", "if true {"},
	},
}

// The other tests fail with each of the faults. For each of them this package is built, so that
// it takes a minute: run it with go test -tags planted.
func TestPlanted(t *testing.T) {
	for file, faults := range planted {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			t.Run(f[0]+" as "+f[1], func(t *testing.T) {
				t.Parallel()
				if n := strings.Count(string(source), f[0]); n != 1 {
					t.Fatalf("%s says it %d times: must be once", file, n)
				}
				dir := t.TempDir()
				bad, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
				doc, err := json.Marshal(map[string]map[string]string{"Replace": {path: bad}})
				if err != nil {
					t.Fatal(err)
				}
				for name, text := range map[string]string{bad: strings.Replace(string(source), f[0], f[1], 1), overlay: string(doc)} {
					if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				out, err := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-skip", "^TestPlanted$", ".").CombinedOutput()
				switch {
				case err == nil:
					t.Error("no test finds it")
				case !strings.Contains(string(out), "--- FAIL"):
					t.Errorf("it does not build: %s", out)
				}
			})
		}
	}
}
