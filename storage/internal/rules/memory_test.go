package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// memory is a store of rows. It reads what a Need names, writes Changes, and knows no rule.
type memory struct {
	t    *testing.T
	now  time.Time
	next int64 // key
	jobs map[int64]stored
	dead map[int64]stored
	kept map[int64]stored // jobs that have ended otherwise
	keys map[string][2]Keeper
	// The groups of which a member has a role.
	groups map[string]bool
	unkept map[number]int64 // jobs that have ended and are gone
	set    storage.Settings // of the queue q
	turns  bool             // calls are exchanges
	need   Need             // of the next load
	tx     Tx
	delays bool // keeps Job.Delay
	// forgets is what a load does not read: a key, who has it or waits for it, the job of a key, args, a
	// group, those that wait, members, a member, the jobs that may end, or a fresh key.
	forgets string
}

// stored is a job with what few jobs have.
type stored struct {
	Job
	unique string
}

func newMemory(t *testing.T) *memory {
	return &memory{
		t: t, now: at(1000 * second), jobs: map[int64]stored{}, dead: map[int64]stored{}, kept: map[int64]stored{},
		keys: map[string][2]Keeper{}, groups: map[string]bool{}, unkept: map[number]int64{}, set: storage.Settings{},
	}
}

func (m *memory) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// load reads what the Need of the call names, and begins the call.
func (m *memory) load() {
	m.need.Sort()
	n := m.need
	m.tx.Reset(n)
	m.begin()
	leave := map[string]int32{}
	for i, name := range n.Groups {
		leave[name] += n.Leave[i]
	}
	for _, k := range n.Keys {
		if m.forgets != "a key" {
			m.loadKey(k, leave)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(leave)) {
		m.groups[name] = true
		if m.forgets != "a group" {
			m.loadGroup(name, int64(leave[name]), n.Anew)
		}
	}
	for _, id := range n.Jobs {
		if j, ok := m.jobs[id]; ok {
			is := j.Job
			is.Unique, is.Priority, is.Args = j.unique, 0, nil
			m.tx.ReadLive(is)
		}
	}
	if m.forgets != "jobs" {
		m.tx.ReadLives()
	}
	m.next += int64(n.Fresh)
	for i := range int64(n.Fresh) { // in any order
		if m.forgets != "a fresh key" {
			m.tx.ReadFresh(m.next - i)
		}
	}
}

// begin begins a call.
func (m *memory) begin() {
	turns := int64(0)
	if m.turns {
		turns = m.now.UnixMicro()
	}
	m.tx.Begin(m.now, turns)
}

func (m *memory) loadKey(k NeedKey, leave map[string]int32) {
	for slot, is := range m.keys[k.Name] {
		j, live := m.jobs[is.Job]
		_, dead := m.dead[is.Job]
		_, kept := m.kept[is.Job]
		if m.forgets != [2]string{"who has a key", "who waits for a key"}[slot] {
			m.tx.ReadKey(k.Name, slot == 1, is, live, kept || dead)
		}
		if k.Conflict.Replaces() && j.Group != "" {
			leave[j.Group]++
		}
		if !live || slot == 0 && !k.Conflict.Replaces() || m.forgets == "the job of a key" {
			continue
		}
		if k.Conflict == nil || k.Conflict.Merge == nil || m.forgets == "args" {
			j.Args = nil
		}
		m.tx.ReadJob(j.Job)
	}
}

func (m *memory) loadGroup(name string, leave int64, anew bool) {
	g := Group{Name: name, Rule: GroupRuleOf(map[storage.Lane]storage.Settings{{Queue: "q"}: m.set}, name)}
	waiting, members := m.members(name)
	for _, j := range members {
		if j.Role == Placed {
			g.Taken++
		} else {
			g.Dead = true
		}
	}
	limit := g.Rule.Limit
	most := limit - g.Taken + leave + 1
	if anew || g.Taken > limit {
		most = limit + leave + 1
	}
	read := leave > 0 && (anew || limit == 1 || g.Taken > limit)
	waiting = waiting[:min(int64(len(waiting)), most)]
	m.tx.ReadGroup(g, read && m.forgets != "members", len(waiting), most)
	for _, j := range waiting {
		if m.forgets != "those that wait" {
			m.tx.ReadMember(j)
		}
	}
	for _, j := range members {
		if read && m.forgets != "members" && m.forgets != "the member "+string(j.State) {
			m.tx.ReadMember(j)
		}
	}
}

// members returns those members of a group that wait, in order, and those that may keep others back.
func (m *memory) members(group string) (waiting, members []Job) {
	for _, all := range []map[int64]stored{m.jobs, m.dead} {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			j := all[id].Job
			is := j.standing()
			is.Cancelling, is.Bytes = false, 0 // nobody asks for these
			j = Job{ID: id, Group: j.Group}
			j.stand(is)
			switch {
			case j.Group != group:
			case j.Role == Waits:
				waiting = append(waiting, j)
			case j.Role != NoRole:
				members = append(members, j)
			}
		}
	}
	return waiting, members
}

// write writes what has changed.
func (m *memory) write() {
	m.t.Helper()
	c := m.tx.Changes()
	numbers := m.numbers()
	for _, r := range c.Jobs {
		was, ok := m.jobs[r.Is.ID]
		read := was.standing()
		if was.State == storage.Running { // then nobody asks for it
			read.Delay = r.Was.Delay
		}
		if r.Was.Bytes == 0 && r.Is.State != "" { // of those that only move nobody asks
			read.Bytes = 0
		}
		if ok != (r.New == nil) || r.New == nil && read != r.Was {
			m.t.Fatalf("job %d is %+v, not %+v as it was read", r.Is.ID, was, r.Was)
		}
		if m.left(was, r) {
			continue
		}
		is := was
		if r.New != nil {
			is = stored{r.Is, r.New.Unique}
		}
		stands := r.Is.standing()
		if stands.Cancelling = is.Cancelling; r.New == nil { // below, or not known
			stands.Bytes = is.Bytes
		}
		is.stand(stands)
		if !m.delays {
			is.Delay = 0
		}
		if r.Does != nil || was.State == storage.Running {
			is.Counters, is.History, is.Doubt, is.Cancelling = r.Is.Counters, r.Is.History, r.Is.Doubt, r.Is.Cancelling
		}
		if r.Does != nil {
			is.Priority, is.Bytes, is.Args = r.Is.Priority, int64(len(r.Does.Args)+len(r.Does.Headers)), append([]byte{}, r.Does.Args...)
		}
		m.jobs[is.ID] = is
	}
	for _, k := range c.Keys {
		if m.keys[k.Name] != k.Were {
			m.t.Fatalf("key %s is %+v, not as it was read: %+v", k.Name, m.keys[k.Name], k.Were)
		}
		if m.keys[k.Name] = [2]Keeper{k.Holder, k.Behind}; k.Holder.Job == 0 {
			delete(m.keys, k.Name)
		}
	}
	for id, j := range m.dead {
		if slices.Contains(c.Pass, j.Group) {
			j.Role = NoRole
			m.dead[id] = j
		}
	}
	for _, name := range c.Empty {
		delete(m.groups, name)
	}
	for _, n := range c.Numbers {
		numbers[number{n.Lane, n.From}] -= n.N
		numbers[number{n.Lane, n.To}] += n.N
		numbers[number{n.Lane, "ended as " + n.Unkept}] += n.N
		numbers[number{n.Lane, "bytes"}] += n.Bytes
	}
	maps.DeleteFunc(numbers, func(at number, n int64) bool { return n == 0 || at.of == "" || at.of == "ended as " })
	if are := m.numbers(); !maps.Equal(numbers, are) {
		m.t.Fatalf("with %v the numbers are %v, want %v", c.Numbers, numbers, are)
	}
	m.need = Need{}
	m.check()
}

// left writes that a job has left its table, if it has.
func (m *memory) left(was stored, r *Row) bool {
	switch r.Is.State {
	case storage.Dead:
		was.State, was.Role, was.Counters = r.Is.State, r.Is.Role, r.Is.Counters
		m.dead[was.ID] = was
	case storage.Done, storage.Cancelled:
		was.State = r.Is.State
		m.kept[was.ID] = was
	case "":
		as := storage.Cancelled
		if r.Finish != nil && r.Finish.Outcome == storage.OutcomeDone {
			as = storage.Done
		}
		m.unkept[number{was.Lane, "ended as " + as}]++
	default:
		return false
	}
	delete(m.jobs, was.ID)
	return true
}

// number is a number of a lane: of the jobs in a state, of those that have ended and are not kept, or of
// the bytes of live ones.
type number struct {
	lane int64
	of   storage.State
}

func (m *memory) numbers() map[number]int64 {
	n := maps.Clone(m.unkept)
	for _, all := range []map[int64]stored{m.jobs, m.dead, m.kept} {
		for _, j := range all {
			n[number{j.Lane, j.State}]++
		}
	}
	for _, j := range m.jobs {
		n[number{j.Lane, "bytes"}] += j.Bytes
	}
	maps.DeleteFunc(n, func(_ number, n int64) bool { return n == 0 })
	return n
}

// check checks what holds between calls.
func (m *memory) check() {
	m.t.Helper()
	roles := map[string]bool{}
	for _, all := range []map[int64]stored{m.jobs, m.dead} {
		for _, j := range all {
			if j.Role != NoRole {
				roles[j.Group] = true
			}
		}
	}
	if !maps.Equal(roles, m.groups) {
		m.t.Fatalf("the groups are %v, want %v", m.groups, roles)
	}
	for id, j := range m.jobs {
		if j.Delay != 0 && j.WasDue {
			m.t.Fatalf("job %d has a delay of %d\n%s", id, j.Delay, m)
		}
		behind := j.unique != "" && m.keys[j.unique][1].Job == id
		if wait := j.Role == Waits || behind; wait != (j.State == storage.Blocked) || j.Group == "" && j.Role != NoRole {
			m.t.Fatalf("%s with role %d, and behind another: %t\n%s", j.State, j.Role, behind, m)
		}
		if j.unique != "" && !behind && m.keys[j.unique][0].Job != id {
			m.t.Fatalf("job %d does not have its key\n%s", id, m)
		}
		if j.Role != Waits {
			continue
		}
		taken, blocks := 0, false
		_, members := m.members(j.Group)
		for _, o := range members {
			if o.Role == Placed {
				taken++
			} else {
				blocks = blocks || o.ID < id
			}
		}
		if !blocks && taken < int(max(m.set[storage.SettingGroupLimit], 1)) {
			m.t.Fatalf("job %d waits beside a free place\n%s", id, m)
		}
	}
}

// String says what there is, in the order of keys.
func (m *memory) String() string {
	var all []string
	for _, table := range []map[int64]stored{m.jobs, m.dead} {
		for _, id := range slices.Sorted(maps.Keys(table)) {
			j := table[id]
			word := fmt.Sprintf("%d %s", id, j.State)
			if j.State != storage.Dead && j.Due != m.now.UnixMicro() {
				word += fmt.Sprintf(" %+d", (j.Due-m.now.UnixMicro())/second)
			}
			if j.WasDue {
				word += " was due"
			}
			if j.Role != NoRole {
				word += [...]string{Waits: " waits", Placed: " placed", Blocks: " blocks"}[j.Role]
			}
			if len(j.Args) > 0 {
				word += " " + string(j.Args)
			}
			if j.Priority != 0 {
				word += fmt.Sprint(" priority ", j.Priority)
			}
			all = append(all, word)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.keys)) {
		k := m.keys[name]
		word := fmt.Sprint(name, " of ", k[0].Job)
		if k[0].Until != 0 {
			word += fmt.Sprintf(" until %+d", (k[0].Until-m.now.UnixMicro())/second)
		}
		if k[1].Job != 0 {
			word += fmt.Sprint(" before ", k[1].Job)
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

// enter decides about jobs that are loaded.
func (m *memory) enter(jobs ...storage.NewJob) (out []storage.Enqueued, err error) {
	for i := range jobs {
		e, err := m.tx.Enter(i, &jobs[i], 7, uint32(i))
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// enqueue is a call.
func (m *memory) enqueue(jobs ...storage.NewJob) []storage.Enqueued {
	m.t.Helper()
	m.need.Enter(jobs)
	m.load()
	out, err := m.enter(jobs...)
	m.must(err)
	m.write()
	return out
}

// run leases jobs.
func (m *memory) run(ids ...int64) {
	m.t.Helper()
	for _, id := range ids {
		j := m.jobs[id]
		if j.State != storage.Ready {
			m.t.Fatalf("job %d is %s", id, j.State)
		}
		j.State = storage.Running
		j.Attempt++
		m.jobs[id] = j
	}
}

// ending is how a job ends that was read before.
type ending struct {
	job         int64
	to          storage.State // Scheduled or Ready: it is put back
	due         int64         // of such a job
	stays, keep bool
	then        []storage.NewJob
}

// finish returns what ends the attempt so.
func (e *ending) finish() storage.Finish {
	f := storage.Finish{Lease: storage.Lease{Key: e.job}, Outcome: storage.OutcomeRetry, Stays: e.stays, Then: e.then}
	switch e.to {
	case storage.Done:
		f.Outcome = storage.OutcomeDone
	case storage.Cancelled:
		f.Outcome = storage.OutcomeCancelled
	case storage.Dead:
		f.Outcome, f.Reason = storage.OutcomeDead, storage.ReasonPermanent
	default:
		f.DueAt = at(e.due)
	}
	return f
}

func (m *memory) needs(all []ending) {
	for _, e := range all {
		j := m.jobs[e.job]
		m.need.Jobs = append(m.need.Jobs, e.job)
		m.need.End(j.unique, j.Group)
		m.need.Enter(e.then)
	}
}

// ends decides about jobs that end, as an exchange does.
func (m *memory) ends(all []ending) error {
	var finish []storage.Finish
	var keeps []time.Duration
	for i := range all {
		finish = append(finish, all[i].finish())
		if all[i].to != storage.Scheduled && all[i].to != storage.Ready {
			keeps = append(keeps, 0)
			if all[i].keep {
				keeps[len(keeps)-1] = time.Hour
			}
		}
	}
	results, _, err := m.tx.Finish(finish, func(int64) (keep time.Duration) {
		keep, keeps = keeps[0], keeps[1:]
		return keep
	}, func(i int, j *storage.NewJob) (storage.Enqueued, error) { return m.tx.Enter(i, j, 7, uint32(i)) })
	for i, r := range results {
		if r != storage.Applied {
			m.t.Errorf("the end of job %d returned %d", all[i].job, r)
		}
	}
	return err
}

// end is a call.
func (m *memory) end(all ...ending) {
	m.t.Helper()
	m.needs(all)
	m.load()
	m.must(m.ends(all))
	m.write()
}
