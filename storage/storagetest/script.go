package storagetest

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// A script is a case as text: commands, each with the answer that is expected. Lines that
// begin with "#" are comments, and those that begin with ">" quote the contract. A command
// is one line; the lines from "----" to the next empty line are its answer. A command
// without them may answer anything but an error.
//
//	enqueue a b group=g     a and b are names that the script gives to jobs
//	----
//	a ready
//	b blocked
//
// The commands, where JOBS are names of jobs, and options are written name=value:
//
//	enqueue JOBS [option]...    queue kind group unique mode quiet maxwait priority delay for args fresh
//	lease N [queue=Q]           answers with the jobs in the order they were leased
//	finish JOB OUTCOME [in=D]   done, retry, snooze, returned, dead, ..., see storage.Outcome;
//	                            keep=D is how long a finished job is kept
//	cancel JOB, delete JOB, redrive JOB, runnow JOB
//	release KEY                 ReleaseUnique
//	skip GROUP [queue=Q]        SkipHead
//	set [queue=Q] [option]...   limit=N dead=block|pass
//	regroup [queue=Q]
//	later D                     moves the clock on
//	states JOBS                 answers with the state of each; "-" is one that is gone
//	job JOB                     answers with its args, priority, counters and when it is due
//
//go:embed scripts/*.txt
var scriptFiles embed.FS

// scriptCases returns the scripts as cases, by the names of their files.
func scriptCases() (all []testCase) {
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		panic(err) // they are part of the package
	}
	for _, file := range files {
		text, err := scriptFiles.ReadFile("scripts/" + file.Name())
		if err != nil {
			panic(err)
		}
		says, steps := parseScript(string(text))
		name := strings.TrimSuffix(path.Base(file.Name()), ".txt")
		all = append(all, testCase{name, says, func(f *fixture) { newScript(f).run(file.Name(), steps) }})
	}
	return all
}

// step is a command of a script, and its answer.
type step struct {
	line    int
	words   []string
	answers bool // it has an answer
	answer  []string
}

// parseScript returns what a script quotes, and its commands.
func parseScript(text string) (says string, steps []step) {
	var quotes []string
	inside := false // an answer
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		quote, quoted := strings.CutPrefix(line, ">")
		switch {
		case line == "":
			inside = false
		case inside:
			last := &steps[len(steps)-1]
			last.answer = append(last.answer, line)
		case line == "----" && len(steps) > 0:
			inside = true
			steps[len(steps)-1].answers = true
		case strings.HasPrefix(line, "#"):
		case quoted:
			quotes = append(quotes, strings.TrimSpace(quote))
		default:
			steps = append(steps, step{line: i + 1, words: strings.Fields(line)})
		}
	}
	return strings.Join(quotes, "\n"), steps
}

// script is a script that runs.
type script struct {
	*fixture
	names  map[storage.ID]string
	jobs   map[string]storage.ID
	leases map[string]storage.Lease
}

func newScript(f *fixture) *script {
	return &script{f, map[storage.ID]string{}, map[string]storage.ID{}, map[string]storage.Lease{}}
}

// run runs the commands in order.
func (s *script) run(file string, steps []step) {
	s.Helper()
	for _, step := range steps {
		got, err := s.step(step.words)
		if err != nil {
			got = []string{"error: " + err.Error()}
		}
		if !step.answers && err == nil || slices.Equal(got, step.answer) {
			continue
		}
		s.Fatalf("%s:%d: %s\n got:\n\t%s\nwant:\n\t%s", file, step.line, strings.Join(step.words, " "),
			strings.Join(got, "\n\t"), strings.Join(step.answer, "\n\t"))
	}
}

// options are the name=value words of a command.
type options map[string]string

// cut returns the words that are no options, and the options.
func cut(words []string) (plain []string, o options) {
	o = options{}
	for _, w := range words {
		if name, value, ok := strings.Cut(w, "="); ok {
			o[name] = value
		} else {
			plain = append(plain, w)
		}
	}
	return plain, o
}

// queue is that of the options, or the usual one.
func (o options) queue() string {
	if q, ok := o["queue"]; ok {
		return q
	}
	return queue
}

func (s *script) step(words []string) (answer []string, err error) {
	plain, o := cut(words[1:])
	arg := ""
	if len(plain) > 0 {
		arg = plain[0]
	}
	sel := named(s.jobs[arg])
	switch words[0] {
	case "enqueue":
		return s.enqueued(plain, o)
	case "lease":
		return s.leased(arg, o)
	case "finish":
		return s.finished(plain, o)
	case "cancel":
		state, err := s.s.Cancel(s.ctx, s.now, s.jobs[arg], kept(keep))
		return []string{string(state)}, err
	case "delete":
		step, err := s.s.Delete(s.ctx, sel)
		return []string{strconv.Itoa(step.N)}, err
	case "redrive":
		step, err := s.s.Redrive(s.ctx, s.now, sel, "")
		return []string{strconv.Itoa(step.N)}, err
	case "runnow":
		step, err := s.s.RunNow(s.ctx, s.now, sel, storage.Waiting{First: true})
		return []string{strconv.Itoa(step.N)}, err
	case "release":
		id, err := s.s.ReleaseUnique(s.ctx, arg)
		return s.called(id), err
	case "skip":
		id, err := s.s.SkipHead(s.ctx, o.queue(), arg)
		return s.called(id), err
	case "set":
		return nil, s.set(o)
	case "regroup":
		_, err := s.s.Regroup(s.ctx, o.queue(), "")
		return nil, err
	case "later":
		d, err := time.ParseDuration(arg)
		s.later(d)
		return nil, err
	case "states":
		return s.states(plain), nil
	case "job":
		return s.job(arg)
	}
	return nil, fmt.Errorf("no command is called %q", words[0])
}

// called returns the name of a job, or "none".
func (s *script) called(id storage.ID) []string {
	if id.IsZero() {
		return []string{"none"}
	}
	return []string{s.names[id]}
}

var conflictModes = map[string]storage.ConflictMode{
	"keep": storage.Keep, "replace": storage.Replace, "debounce": storage.Debounce, "after": storage.After, "fail": storage.Fail,
}

// newJob is a job with these options.
func (o options) newJob() (n storage.NewJob, err error) {
	n = newJob()
	conflict := storage.Conflict{}
	n.Queue = o.queue()
	duration := func(v string) (d time.Duration) {
		d, e := time.ParseDuration(v)
		err = errors.Join(err, e)
		return d
	}
	for name, v := range o {
		switch name {
		case "queue":
		case "kind":
			n.Kind = v
		case "group":
			n.Group = v
		case "unique":
			n.Unique = v
		case "args":
			n.Args = []byte(v)
		case "priority":
			var e error
			n.Priority, e = strconv.Atoi(v)
			err = errors.Join(err, e)
		case "delay":
			n.Delay = duration(v)
		case "for":
			n.UniqueFor = duration(v)
		case "quiet":
			conflict.Quiet = duration(v)
		case "maxwait":
			conflict.MaxWait = duration(v)
		case "fresh":
			conflict.Fresh = v == "true"
		case "mode":
			var ok bool
			if conflict.Mode, ok = conflictModes[v]; !ok {
				err = errors.Join(err, fmt.Errorf("no mode is called %q", v))
			}
			n.Conflict = &conflict
		default:
			err = errors.Join(err, fmt.Errorf("no option is called %q", name))
		}
	}
	return n, err
}

func (s *script) enqueued(names []string, o options) (answer []string, err error) {
	n, err := o.newJob()
	if err != nil {
		return nil, err
	}
	out, err := s.s.Enqueue(s.ctx, s.now, times(len(names), n))
	var dup *storage.DuplicateError
	if errors.As(err, &dup) {
		return []string{"refused, held by " + s.names[dup.ID]}, nil
	}
	for i, e := range out {
		if !e.Duplicate {
			s.jobs[names[i]], s.names[e.ID] = e.ID, names[i]
			answer = append(answer, s.states(names[i:i+1])...)
			continue
		}
		text := "duplicate of " + s.names[e.ID]
		if e.Replaced {
			text += ", replaced"
		}
		if e.Gone {
			text += ", gone"
		}
		answer = append(answer, text)
	}
	return answer, err
}

func (s *script) leased(most string, o options) (answer []string, err error) {
	n, err := strconv.Atoi(most)
	if err != nil {
		return nil, err
	}
	want := storage.Want{Queues: []string{o.queue()}, Kinds: []string{kind, "other"}, N: n}
	for _, l := range s.exchange(s.s, storage.Exchange{Wants: []storage.Want{want}}).Leased {
		s.leases[s.names[l.ID]] = l.Lease
		answer = append(answer, s.names[l.ID])
	}
	if answer == nil {
		answer = []string{"none"}
	}
	return answer, nil
}

func (s *script) finished(plain []string, o options) (answer []string, err error) {
	if len(plain) != 2 {
		return nil, errors.New("finish takes a job and an outcome")
	}
	fin := storage.Finish{Lease: s.leases[plain[0]]}
	for fin.Outcome = storage.OutcomeDone; fin.Outcome.String() != plain[1]; fin.Outcome++ {
		if fin.Outcome > storage.OutcomeUnavailable {
			return nil, fmt.Errorf("no outcome is called %q", plain[1])
		}
	}
	if fin.Outcome == storage.OutcomeDead {
		fin = died(fin.Lease, storage.ReasonPermanent, "no")
	}
	if in, ok := o["in"]; ok {
		d, err := time.ParseDuration(in)
		if err != nil {
			return nil, err
		}
		fin.DueAt = s.now.Add(d)
	}
	retention := keep
	if v, ok := o["keep"]; ok {
		if retention, err = time.ParseDuration(v); err != nil {
			return nil, err
		}
	}
	x := storage.Exchange{Finish: []storage.Finish{fin}, Retention: kept(retention)}
	names := [...]string{storage.Applied: "applied", storage.Lost: "lost", storage.Cancelling: "cancelling", storage.Refused: "refused", storage.Spent: "spent", storage.Ended: "ended"}
	return []string{names[s.exchange(s.s, x).Finished[0]]}, nil
}

func (s *script) set(o options) error {
	set := storage.Settings{}
	for name, v := range o {
		switch name {
		case "queue":
		case "limit":
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return err
			}
			set[storage.SettingGroupLimit] = n
		case "dead":
			var d storage.DeadHead
			if err := d.UnmarshalText([]byte(v)); err != nil {
				return err
			}
			set[storage.SettingDeadHead] = int64(d)
		default:
			return fmt.Errorf("no setting is called %q", name)
		}
	}
	return s.s.Configure(s.ctx, storage.Lane{Queue: o.queue()}, set)
}

// states returns the states of jobs, each with its name.
func (s *script) states(names []string) (answer []string) {
	for _, name := range names {
		r, err := s.s.Job(s.ctx, s.jobs[name])
		switch {
		case errors.Is(err, storage.ErrNotFound):
			r.State = "-"
		case err != nil:
			r.State = storage.State(err.Error())
		}
		answer = append(answer, name+" "+string(r.State))
	}
	return answer
}

func (s *script) job(name string) ([]string, error) {
	r, err := s.s.Job(s.ctx, s.jobs[name])
	due := "at once"
	if r.DueAt.After(s.now) {
		due = "in " + r.DueAt.Sub(s.now).String()
	}
	return []string{fmt.Sprintf("args=%s priority=%d attempt=%d retry=%d due %s", r.Args, r.Priority, r.Attempt, r.Retry, due)}, err
}
