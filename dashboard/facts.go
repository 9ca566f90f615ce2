package dashboard

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/errandq/errand"
)

// fact is something that was so when somebody was asked.
type fact struct {
	name, value string
	shown       string // if not empty, instead of the value, which people cannot read
}

// change is a fact that is another one now.
type factChange struct{ Name, Was, Is string }

// secretWas returns a value by which a change of a secret is seen, and that tells nothing of it. The
// values of others, which have another name, are others: nobody can try a guess with them.
func (b *board) secretWas(name string, doc []byte) string {
	m := hmac.New(sha256.New, b.salt)
	m.Write(fmt.Appendf(nil, "%d %s ", len(name), name))
	m.Write(compact(doc))
	return hex.EncodeToString(m.Sum(nil)[:12])
}

// newSalt returns what makes the values of secretWas those of one handler.
func newSalt() []byte { return []byte(rand.Text()) }

// was returns facts for a form.
func (b *board) was(facts []fact) string {
	v := url.Values{"": {b.secretWas("", nil)}}
	for _, f := range facts {
		v.Set(f.name, f.value)
	}
	return v.Encode()
}

// readWas reads what was returns, nil if another handler has made it.
func (b *board) readWas(was string) url.Values {
	v, err := url.ParseQuery(was)
	if err != nil || v.Get("") != b.secretWas("", nil) {
		return nil
	}
	return v
}

// changed returns which facts are others than a form says.
func (x *request) changed(facts []fact, was string) (all []factChange) {
	v := x.b.readWas(was)
	for _, f := range facts {
		old := v.Get(f.name)
		if !v.Has(f.name) || old == f.value { // what was not asked about has not changed
			continue
		}
		c := factChange{f.name, cmp.Or(old, "none"), cmp.Or(f.shown, f.value, "none")}
		if f.shown != "" {
			c.Was = "another"
		}
		all = append(all, c)
	}
	return all
}

// jobFacts are what a deed on a job depends on, as somebody may see them.
func (x *request) jobFacts(j *errand.JobInfo) []fact {
	all := x.b.jobWas(j)
	all[slices.IndexFunc(all, func(f fact) bool { return f.name == "args" })].shown = x.argsShown(j)
	return all
}

// argsShown returns what is shown of args that have changed.
func (x *request) argsShown(j *errand.JobInfo) string {
	if args, note, err := x.args(j.Kind, j.Args); err == nil && note == "" && args != "" {
		return args
	}
	return "changed"
}

// jobWas is jobFacts for a form, without what is shown of args.
func (b *board) jobWas(j *errand.JobInfo) []fact {
	own := policyText(j)
	return []fact{
		{"state", string(j.State), ""},
		{"attempt", strconv.Itoa(j.Attempt), ""},
		{"due", timeText(j.DueAt), ""},
		{"queue", j.Queue, ""},
		{"priority", strconv.Itoa(j.Priority), ""},
		{"args", b.argsWas(j.ID, j.Args), "changed"},
		{"policy", b.policyWas(j.ID, []byte(own)), cmp.Or(own, "none of its own")},
	}
}

// argsWas is secretWas of the args of a job.
func (b *board) argsWas(id errand.ID, doc []byte) string {
	return b.secretWas("args "+id.String(), doc)
}

// policyWas is secretWas of the job's own policy.
func (b *board) policyWas(id errand.ID, doc []byte) string {
	return b.secretWas("policy "+id.String(), doc)
}

// policyText returns the job's own policy as JSON, empty if it has none.
func policyText(j *errand.JobInfo) string {
	if j.Policy == nil {
		return ""
	}
	return asJSON(j.Policy)
}

// holdFacts are what a deed on a hold depends on, nil if there is none.
func (x *request) holdFacts(h *errand.HoldState) []fact {
	h = cmp.Or(h, &errand.HoldState{})
	all := []fact{{"held since", timeText(h.Since), ""}, {"held by", x.text(h.By), ""}}
	if slices.Contains(ownHolds, h.Reason) { // each job that is let through moves the rest
		return all
	}
	return append(all, fact{"held until", timeText(h.Until), ""}, fact{"note", x.text(h.Detail), ""})
}

// ownHolds are the reasons of the holds of errand itself.
var ownHolds = []string{"brake", "unavailable"}

// timeText is a time as a fact, empty if it is zero.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// scheduleFacts are what a deed on a schedule depends on.
func scheduleFacts(b *board, s *errand.ScheduleInfo) []fact {
	options, _ := json.Marshal(map[string]any{"missed": s.Missed, "overlap": s.Overlap, "jitter": s.Jitter, "queue": s.Options.Queue, "priority": s.Options.Priority, "headers": s.Options.Headers})
	return []fact{
		{"spec", s.Spec, ""},
		{"zone", s.Zone, ""},
		{"kind", s.Kind, ""},
		{"paused", strconv.FormatBool(s.Paused), ""},
		{"args", b.secretWas("args of schedule "+s.Name, s.Args), "changed"},
		{"options", b.secretWas("options of schedule "+s.Name, options), "changed"},
	}
}
