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
		{"if g.Dead && g.Rule.Pass {", "if g.Rule.Pass {"},
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
		{"g.Dead && !g.Rule.Pass || g.Taken", "g.Taken"},
		{"g.Dead && !g.Rule.Pass || g.Taken", "g.Dead || g.Taken"},
		{"g.Taken >= g.Rule.Limit {", "g.Taken > g.Rule.Limit {"},
		{"if len(g.Waiting) > 0 {\n\t\treturn Waits, true", "if false {\n\t\treturn Waits, true"},
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
	},
	"rows.go": {
		{"d.Pass[:0]", "d.Pass"},
		{"d.Leave[:0]", "d.Leave"},
		{"d.Block[:0]", "d.Block"},
		{"d.LetIn[:0]", "d.LetIn"},
		{"g.Settle(anew, at, d)", "g.Settle(anew, 0, d)"},
		{"g.Settle(anew, at, d)", "g.Settle(false, at, d)"},
	},
	"key.go": {
		{"return k.Until > 0 && k.Until < Forever", "return k.Until > 0"},
		{"return k.Until > 0 && k.Until < Forever", "return k.Until < Forever"},
		{"if k.Live || !k.windowed() ||", "if !k.windowed() ||"},
		{"if k.Live || !k.windowed() ||", "if k.Live ||"},
		{"k.Created <= now", "k.Created < now"},
		{"|| k.Until <= k.Created", ""},
		{"k.Until += now - k.Created", "k.Until = now"},
		{"return !k.Live && k.windowed() && k.Until <= now", "return k.windowed() && k.Until <= now"},
		{"return !k.Live && k.windowed() && k.Until <= now", "return !k.Live && k.Until <= now"},
		{"return !k.Live && k.windowed() && k.Until <= now", "return !k.Live && k.windowed() && k.Until < now"},
		{"w == nil || w.State == storage.Running ||", "w == nil ||"},
		{"c.Mode == storage.After && w.Attempt > 0", "w.Attempt > 0"},
		{"c.Mode == storage.After && w.Attempt > 0", "c.Mode == storage.After"},
		{"c.Mode == storage.After && w.Attempt > 0", "false"},
		{"case c != nil && c.Mode == storage.Fail:", "case false:"},
		{"case !k.Live && k.windowed():", "case !k.Live:"},
		{"case !k.Live && k.windowed():", "case k.windowed():"},
		{"k.Live && k.Until != Forever && j.Group", "k.Live && j.Group"},
		{"k.Live && k.Until != Forever && j.Group", "k.Until != Forever && j.Group"},
		{"k.Until != Forever && j.Group == \"\"", "k.Until != Forever"},
		{"if k != nil {", "if false {"},
		{"w = k.changes(c)", "w = k.Waiting"},
		{"(w != nil) == (old != nil) &&", ""},
		{"bytes.Equal(old, w.Args)", "(bytes.Equal(old, w.Args) || true)"},
		{"append([]byte{}, w.Args...)", "w.Args"},
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
		{"case Change, Follow:", "case Change:"},
		{"case Change, Follow:", "case Follow:"},
		{"Until: until, Live: true, Waiting: &w", "Live: true, Waiting: &w"},
		{"Until: until, Live: true, Waiting: &w", "Until: until, Waiting: &w"},
		{"Until: until, Live: true, Waiting: &w", "Until: until, Live: true"},
		{"*k = Key{}", ""},
		{"k.Created, k.Until = created, until", "k.Created = created"},
		{"k.Created, k.Until = created, until", "k.Until = until"},
		{"k.Live, k.Waiting = false, nil", "k.Waiting = nil"},
		{"k.Live, k.Waiting = false, nil", "k.Live = false"},
		{"case follows:", "case false:"},
		{"case k.Until > now:", "case k.Until >= now:"},
	},
	"rules.go": {
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
