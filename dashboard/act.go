package dashboard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/errandq/errand"
)

const (
	// mostForm is how many bytes a form may have.
	mostForm = 1 << 20
	// actFor is how long an action may take. It goes on if who has asked for it goes away.
	actFor = 30 * time.Second
)

// Action is what somebody has done on the pages, see [Options].OnAction.
type Action struct {
	At   time.Time
	By   string // Identity.Name
	Role Role
	// Do is what was done: redrive, run, cancel, delete, change, enqueue, hold, release, skip,
	// redrive-heads and skip-heads of a queue, replay, pause, resume and fire for schedules, stop for bulk jobs, enable for endpoints,
	// pause-subscription, resume-subscription, and accept and revoke for devices.
	Do string
	// What says in words to what it was done.
	What string
	// N is how many jobs or messages it was done to, as far as that is known, and Job is the
	// job if it was one, or the one that was enqueued. Bulk is the bulk job that does it.
	N    int64
	Job  errand.ID
	Bulk errand.ID
	// Err is why it was not done, or not in full. If nil, it was.
	Err error
}

// deed is something that can be done. It is asked for twice: the first time a page says what it
// would come to, and asks back, or has a form that says so, see [form].
type deed struct {
	name string
	role Role
	// What it does, as a button says it.
	title string
	// inputs are the fields that the page which asks back has, or the form in its place.
	inputs []string
	phrases
	// plan returns what the deed would do, and does it.
	plan func(x *request, f url.Values) (*plan, error)
}

// plan is a deed about to be done.
type plan struct {
	text string // what it does to what, with the number
	note string // what else is to be known
	why  string // why it is done, as who does it says
	n    int64  // of jobs; 0 for a deed that is about something else
	more bool   // there are more than n
	flow bool   // others come all the time: only many more are another question
	jobs []errand.JobInfo
	// facts are what it depends on: if one of them changes, it is asked for again.
	facts  []fact
	inputs []input
	docs   [][2]string // names and JSON of what is to be written
	idle   string      // why there is nothing to do; empty: there is
	// question and yes are asked and confirmed in place of what phrases say, if not empty.
	question, yes string
	at            string // where what it is about is to be seen, from the front
	job           errand.ID
	// do does it, and says in the outcome what was done, also if it returns an error.
	do func(ctx context.Context, q *errand.Queue, out *outcome) error
	// page is shown instead: a form that is to be filled in.
	page *content
	bulk bool   // a bulk job does it
	goOn string // what others do if the job succeeds; empty: no others wait for it
	// again returns the form for what do has found wrong in it. If nil, there is none.
	again func(error) *content
}

// phrases are the words in which a deed is asked for.
type phrases struct {
	does         string // with %s, what it is done to
	it           string // what that is, if no number of jobs is known
	one, several string // say what becomes of one thing, or of several, if it is not done
}

func (w *phrases) ask(what string) string { return fmt.Sprintf(w.does, what) }

// dangerous reports whether nobody can take a deed back.
func dangerous(do string) bool {
	return slices.Contains([]string{"cancel", "delete", "skip", "skip-heads", "revoke"}, do)
}

var deeds = map[string]*deed{}

func init() {
	for _, d := range []*deed{
		{"redrive", Operator, "Redrive", []string{"rate"}, phrases{"Redrive %s", "the job", "Leave it dead", "Leave them dead"}, onJobs(&redriveVerb)},
		{"run", Operator, "Run now", []string{"rate"}, phrases{"Run %s now", "the job", "Let it wait", "Let them wait"}, onJobs(&runVerb)},
		{"cancel", Operator, "Cancel", []string{"rate"}, phrases{"Cancel %s", "the job", "Keep it", "Keep them"}, onJobs(&cancelVerb)},
		{"delete", Admin, "Delete", []string{"rate"}, phrases{"Delete %s", "the job", "Keep it", "Keep them"}, onJobs(&deleteVerb)},
		{"change", Operator, "Change", changeInputs, phrases{"Change %s", "the job", "Leave it as it is", "Leave them as they are"}, changeJobs},
		{"enqueue", Admin, "Enqueue", nil, phrases{"Enqueue %s", "the job", "Do not enqueue it", ""}, enqueueJob},
		{"hold", Operator, "Hold", []string{"reason", "for", "note"}, phrases{"Hold %s", "it", "Do not hold", ""}, hold},
		{"release", Operator, "Release", nil, phrases{"Release %s", "it", "Keep the hold", ""}, release},
		{"skip", Operator, "Skip the head", nil, phrases{"Skip %s", "the job", "Let the group wait", ""}, skip},
		{"redrive-heads", Operator, "Redrive all", []string{"rate"}, phrases{"Redrive %s", "the job", "Leave it dead", "Leave them dead"}, redriveHeads},
		{"skip-heads", Operator, "Skip all", nil, phrases{"Skip %s", "the job", "Let the group wait", "Let the groups wait"}, skipHeads},
		{"replay", Operator, "Replay", []string{"since"}, phrases{"Send %s again", "them", "Send nothing", ""}, replay},
		{"pause", Operator, "Pause", nil, phrases{"Pause %s", "the schedule", "Let it fire", ""}, ofSchedule("paused", (*errand.Schedules).Pause)},
		{"resume", Operator, "Resume", nil, phrases{"Resume %s", "the schedule", "Leave it paused", ""}, ofSchedule("resumed", (*errand.Schedules).Resume)},
		{"fire", Operator, "Run now", nil, phrases{"Run %s now", "the schedule", "Wait for its next tick", ""}, ofSchedule("", nil)},
		{"stop", Operator, "Stop the bulk job", nil, phrases{"Stop %s", "the bulk job", "Let it go on", ""}, stop},
		{"enable", Operator, "Enable", nil, phrases{"Enable %s", "the endpoint", "Leave it disabled", ""}, enable},
		{"pause-subscription", Operator, "Pause", nil, phrases{"Pause %s", "the subscription", "Let it go on", ""}, ofSubscription(true)},
		{"resume-subscription", Operator, "Resume", nil, phrases{"Resume %s", "the subscription", "Leave it paused", ""}, ofSubscription(false)},
		{"accept", Operator, "Accept", nil, phrases{"Accept %s", "the device", "Leave it held", ""}, accept},
		{"revoke", Admin, "Revoke", nil, phrases{"Revoke %s", "the device", "Let it send", ""}, revoke},
	} {
		deeds[d.name] = d
	}
}

// mayDo returns an error if somebody may not do a deed.
func (x *request) mayDo(d *deed) error {
	if why := x.b.frozen(x.Context()); why != "" {
		return &refusal{status: http.StatusForbidden, text: "Nothing can be done here.", remedy: why}
	}
	if x.who.Role < d.role {
		return &refusal{status: http.StatusForbidden, text: "You may not do that.", remedy: "It takes the role " + d.role.String() + "; yours is " + x.who.Role.String() + "."}
	}
	return nil
}

// act does what a form asks for, or asks back.
func act(x *request) (_ *content, err error) {
	f := x.PostForm
	d := deeds[f.Get("do")]
	if d == nil {
		return nil, &errand.FieldError{Field: "do", Value: f.Get("do"), Limit: "must be one of " + strings.Join(sortedKeys(deeds), ", ")}
	}
	if err := x.mayDo(d); err != nil {
		x.b.o.Logger.Warn("errand: an action on the dashboard was refused", "by", x.who.Name, "role", x.who.Role.String(), "do", d.name, "error", err)
		return nil, err
	}
	key := f.Get("key")
	x.begun = time.Now()
	if key != "" {
		q, first, err := x.b.ledger.take(x.Context(), key, x.who.Name, d.digest(f), digest(f), x.begun)
		switch {
		case err != nil || q != nil && q.out != nil && !first: // it was sent twice, and may still be done
			if err != nil {
				return nil, err
			}
			return &content{to: q.out.page(key)}, nil
		case first:
			x.asked = q
		}
	}
	var out *outcome
	defer func() {
		if x.asked != nil {
			x.b.ledger.end(x.asked, out, time.Now())
		}
	}()
	p, err := d.plan(x, f)
	switch {
	case err != nil:
		return nil, err
	case p.page != nil:
		return p.page, nil
	case p.idle != "":
		return &content{title: d.title, data: &confirmation{Title: d.title, Idle: visible(p.idle), At: p.at}}, nil
	}
	p.text, p.note, p.question, p.yes = visible(p.text), visible(p.note), visible(p.question), visible(p.yes)
	q := p.confirmation(x, d)
	q.Late = key != "" && x.asked == nil
	q.Changes = x.changed(p.facts, f.Get("was"))
	q.Were, q.More = p.grown(f.Get("sure"))
	wrong := slices.ContainsFunc(p.inputs, func(i input) bool { return i.Err != "" })
	if x.asked == nil || q.More || wrong || len(q.Changes) > 0 {
		return x.ask(d, p, q, wrong), nil
	}
	var again *content
	if out, again = x.perform(d, p); again != nil {
		return again, nil
	}
	return &content{to: out.page(key)}, nil
}

// confirmation is what a page shows that asks back.
type confirmation struct {
	Title, Question, Note string
	Yes, No               string // the buttons: that which does it, and the safe one
	Danger                bool   // nobody can take it back
	Idle                  string // why there is nothing to do
	Jobs                  []withArgs
	At                    string
	Inputs                []input
	Docs                  [][2]string
	Changes               []factChange
	Late                  bool // the question is not known any more
	Were                  int64
	More                  bool // there are more jobs than the Were that were asked for
	Hidden                [][2]string
}

func (p *plan) confirmation(x *request, d *deed) *confirmation {
	q := &confirmation{Title: d.title, Question: cmp.Or(p.question, d.ask(p.text)+"?"), Yes: p.yes, No: d.one, Note: p.note, Jobs: x.withArgs(p.jobs), At: p.at, Inputs: p.inputs, Docs: p.docs, Danger: dangerous(d.name)}
	if (p.n > 1 || p.more) && d.several != "" {
		q.No = d.several
	}
	switch {
	case q.Yes != "":
	case p.more:
		q.Yes = d.ask("them")
	case p.n > 0 && p.job.IsZero():
		q.Yes = d.ask(plural(p.n, "job"))
	default:
		q.Yes = d.ask(d.it)
	}
	return q
}

// own are the fields of a form that are about asking back.
var own = []string{"sure", "was", "key", "from"}

// ask returns the page that asks back.
func (x *request) ask(d *deed, p *plan, q *confirmation, wrong bool) *content {
	f := x.PostForm
	for _, name := range sortedKeys(f) {
		if slices.Contains(own, name) || slices.ContainsFunc(p.inputs, func(i input) bool { return i.Name == name }) {
			continue
		}
		for _, v := range f[name] {
			q.Hidden = append(q.Hidden, [2]string{name, v})
		}
	}
	sure := strconv.FormatInt(p.n, 10)
	if p.more {
		sure += "+"
	}
	key := x.b.ledger.ask(x.who.Name, d.digest(f), x.begun)
	q.At = x.from(p.at)
	q.Hidden = append(q.Hidden, [2]string{"from", "./" + q.At})
	q.Hidden = append(q.Hidden, [2]string{"sure", sure}, [2]string{"was", x.b.was(p.facts)}, [2]string{"key", key})
	c := &content{title: d.title, data: q}
	if wrong {
		c.status = http.StatusBadRequest
	}
	return c
}

// digest returns what a form is about, without what may differ in the answer.
func (d *deed) digest(f url.Values) [32]byte { return digest(f, slices.Concat(own, d.inputs)...) }

// digest returns a digest of a form without some of its fields.
func digest(f url.Values, without ...string) [32]byte {
	f = maps.Clone(f)
	for _, name := range without {
		delete(f, name)
	}
	return sha256.Sum256([]byte(f.Encode()))
}

// grown reports whether there are more jobs than somebody was asked about, and how many these
// were.
func (p *plan) grown(sure string) (were int64, more bool) {
	all, open := strings.CutSuffix(sure, "+")
	were, err := strconv.ParseInt(all, 10, 64)
	most := were
	if p.flow {
		most = max(2*were, were+10)
	}
	return were, err == nil && !open && (p.more || p.n > most)
}

// perform does what was confirmed. It is logged and told. If what was typed into a form is wrong,
// it returns the form: nothing was done, and nothing is logged or told.
func (x *request) perform(d *deed, p *plan) (*outcome, *content) {
	ctx, stop := withTimeout(context.WithoutCancel(x.Context()), actFor)
	defer stop()
	out := &outcome{Title: d.title, At: p.at, From: x.from(p.at), n: p.n, job: p.job}
	err := x.do(ctx, d.name, p, out)
	x.b.looks.met(err)
	switch {
	case !errors.Is(err, errand.ErrInvalid):
	case p.again != nil:
		return nil, p.again(err)
	case blame(p.inputs, err):
		return nil, x.ask(d, p, p.confirmation(x, d), true)
	}
	out.Told = visible(out.Told)
	if err != nil {
		out.Case, out.Remedy = undone(err)
		out.Case = visible(out.Case)
		if out.None = out.Told == ""; out.None {
			out.Told = "Nothing was done."
			if errors.Is(err, errand.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) {
				out.Told = "Whether it was done is not known."
			}
		}
	}
	log := x.b.o.Logger.With("by", x.who.Name, "role", x.who.Role.String(), "do", d.name, "what", p.text, "outcome", out.Told)
	switch r := (*refusal)(nil); {
	case err == nil:
		log.Info("errand: an action on the dashboard")
	case errors.As(err, &r):
		log.Warn("errand: an action on the dashboard was not done", "error", err)
	default:
		log.Error("errand: an action on the dashboard has failed", "error", err)
	}
	x.b.tell(&Action{At: x.b.q.Clock().Now, By: x.who.Name, Role: x.who.Role, Do: d.name, What: p.text, N: out.n, Job: out.job, Bulk: out.bulk, Err: err})
	return out, nil
}

// do does it on the queue for actions.
func (x *request) do(ctx context.Context, name string, p *plan, out *outcome) (err error) {
	to := x.b.q
	if x.b.o.Writer != nil {
		if to, err = x.b.o.Writer(ctx); err != nil {
			return fmt.Errorf("the queue cannot be opened for writing: %w", err)
		}
	}
	what := x.unsaid(p.text)
	if p.bulk {
		what += byBulk
	}
	if ctx, err = errand.WithAudit(ctx, errand.AuditEntry{At: to.Clock().Now, By: x.by(), Do: name, What: what, Note: p.why}); err != nil {
		return err
	}
	return p.do(ctx, to, out)
}

// unsaid leaves out of what is kept the text of an error that jobs were chosen by: it is for the role
// admin, and the others would see it.
func (x *request) unsaid(text string) string {
	for _, name := range []string{"error", "of-error"} { // see changeForm
		if e := x.PostForm.Get(name); e != "" {
			text = strings.NewReplacer(errorContains+" “"+e+"”", errorContains+" “…”", errorContains+" “"+visible(e)+"”", errorContains+" “…”").Replace(text)
		}
	}
	return text
}

// declined is why nothing is to be done: no fault, but how things are by now.
func declined(format string, args ...any) error {
	return &refusal{status: http.StatusConflict, text: fmt.Sprintf(format, args...)}
}

// tell calls OnAction, whose panic is its own.
func (b *board) tell(a *Action) {
	if b.o.OnAction == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			b.o.Logger.Error("errand: OnAction of the dashboard has panicked", "do", a.Do, "panic", fmt.Sprint(v))
		}
	}()
	b.o.OnAction(*a)
}

// by is who acts, for what an action leaves: the name, or the role if no name is known.
func (x *request) by() string {
	return cut(cmp.Or(strings.ReplaceAll(x.who.Name, "\x00", ""), "somebody with the role "+x.who.Role.String()), 255)
}

// visible returns text in which people see each letter that is not: those that turn the direction
// of what follows would make it say something else.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsGraphic(r) || r == '\n' {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
