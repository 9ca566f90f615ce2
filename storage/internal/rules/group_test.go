package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
)

var (
	inOrder = GroupRule{Limit: 1}
	passing = GroupRule{Limit: 1, Pass: true}
)

func several(n int64) GroupRule { return GroupRule{Limit: n, Pass: true} }

// groupOf reads a group as words: a letter and a key each. s, r and x are scheduled, ready and
// running members with a place, d is dead and blocks, and w waits. It reads as much as a store
// has to.
func groupOf(t *testing.T, r GroupRule, members string, anew bool) *Group {
	t.Helper()
	g := &Group{Name: "g", Rule: r}
	var all []Member
	for _, word := range strings.Fields(members) {
		job, err := strconv.ParseInt(word[1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m := Member{Job: job, Role: Placed}
		switch word[0] {
		case 's':
			m.State = storage.Scheduled
		case 'r':
			m.State = storage.Ready
		case 'x':
			m.State = storage.Running
		case 'd':
			m.State, m.Role, g.Dead = storage.Dead, Blocks, true
		case 'w':
			g.Waiting = append(g.Waiting, job)
			continue
		default:
			t.Fatalf("member %q", word)
		}
		if m.Role == Placed {
			g.Taken++
		}
		all = append(all, m)
	}
	slices.Sort(g.Waiting)
	reads, waiting := g.Reads(anew)
	if g.Waiting = g.Waiting[:min(int64(len(g.Waiting)), waiting)]; reads {
		g.Members = all
	}
	return g
}

// String says what changes.
func (d *Moves) String() string {
	var words []string
	for _, name := range d.Pass {
		words = append(words, "pass "+name)
	}
	for _, job := range d.Leave {
		words = append(words, fmt.Sprint("leave ", job))
	}
	for _, m := range d.Block {
		words = append(words, fmt.Sprint("block ", m.Job))
	}
	for _, l := range d.LetIn {
		word := fmt.Sprint("let ", l.Job)
		if l.At != 0 {
			word += fmt.Sprint(" at ", l.At)
		}
		if l.As != Placed {
			word += fmt.Sprint(" as ", l.As)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestGroup_Settle(t *testing.T) {
	for _, c := range []struct {
		rule          GroupRule
		anew          bool
		members, want string
	}{
		{inOrder, false, "", ""},
		{inOrder, false, "w4 w2 w3", "let 2"},
		{inOrder, false, "r1 w2", ""},
		{inOrder, false, "s1 w2", ""},
		{inOrder, false, "x1 w2", ""},
		{inOrder, false, "r3 w2", "block 3, let 2"},            // one with a lower key has come back
		{inOrder, false, "s3 w2", "block 3, let 2"},            // whenever it is due
		{inOrder, false, "x3 w2", ""},                          // but that one runs
		{inOrder, false, "x3 x4 r1 w2", "block 1"},             // leased together, and 1 was put back
		{inOrder, false, "r3 r5 r4", "block 5, block 4"},       // more than one may be there after a change of the limit
		{inOrder, false, "d1 w2", ""},                          // the dead one blocks
		{inOrder, false, "d3 w2", "let 2"},                     // not one before it
		{inOrder, false, "d1 r2 w3", "block 2"},                // 1 has died while 2 was let in
		{inOrder, false, "d1 x2 w3", ""},                       //
		{inOrder, false, "d1 d2 x4 r3", "block 3"},             //
		{passing, false, "d1 w2", "pass g, let 2"},             //
		{passing, false, "d1 d2 w3", "pass g, let 3"},          //
		{passing, false, "d1 r3 w2", "pass g, block 3, let 2"}, //
		{passing, false, "d1 r2 w3", "pass g"},                 //
		{inOrder, true, "r1 w2", ""},                           //
		{several(3), false, "x1 w4 w2 w3", "let 2, let 3"},     //
		{several(3), false, "x1 s2 w3 w4", "let 3"},            // a place is kept by one that is put back with it
		{several(3), false, "w2", "let 2"},                     //
		{several(3), false, "d1 w2", "pass g, let 2"},          //
		{several(2), false, "r1 r2 w3", ""},                    //
		{several(2), false, "r4 r1 x3 r2", "block 4, block 2"}, // too many: the highest keys that do not run
		{several(2), false, "x1 x2 x3 w4", ""},                 //
		{several(2), false, "x1 x2 x3 r4", "block 4"},          //
		{several(2), false, "s1 r2 x3 w4", "leave 1"},          // that is enough
		{several(2), false, "s1 s2 x3 w4 w5", "leave 1, leave 2, let 4"},
		{several(2), true, "s1 w4 w5 w6", "leave 1, let 4, let 5"}, // that one needs no place now
		{several(2), true, "x1 w4 w5", "let 4"},                    //
	} {
		var d Moves
		if groupOf(t, c.rule, c.members, c.anew).Settle(c.anew, 9, &d); d.String() != c.want {
			t.Errorf("%+v, anew %v, %q: %q, want %q", c.rule, c.anew, c.members, d.String(), c.want)
		}
	}
}

func TestGroup_Join(t *testing.T) {
	for _, c := range []struct {
		rule    GroupRule
		members string
		state   storage.State
		want    Role
		others  bool
		pass    bool
	}{
		{inOrder, "", storage.Ready, Placed, false, false},
		{inOrder, "", storage.Scheduled, Placed, false, false},
		{inOrder, "s1", storage.Ready, Waits, false, false},
		{inOrder, "x1", storage.Ready, Waits, false, false},
		{inOrder, "d1", storage.Ready, Waits, false, false},
		{passing, "d1", storage.Ready, Placed, false, true},
		{passing, "d1 x2", storage.Ready, Waits, false, true},
		{passing, "d1 w2", storage.Ready, Waits, true, true},
		{passing, "w1", storage.Ready, Waits, true, false},
		{several(2), "x1", storage.Ready, Placed, false, false},
		{several(2), "x1 x2", storage.Ready, Waits, false, false},
		{several(2), "x1 x2", storage.Scheduled, NoRole, false, false},
		{several(2), "x1 w2", storage.Ready, Waits, true, false},
		{several(2), "x1 x2 w3", storage.Ready, Waits, false, false},
	} {
		g := groupOf(t, c.rule, c.members, true)
		taken := g.Taken
		role, others, pass := g.Join(c.state)
		if role != c.want || others != c.others || pass != c.pass {
			t.Errorf("%+v, %q, %s: role %d, others %v, pass %v, want %d, %v, %v", c.rule, c.members, c.state, role, others, pass, c.want, c.others, c.pass)
		}
		if role == Placed {
			taken++
		}
		if g.Taken != taken {
			t.Errorf("%+v, %q, %s: %d are taken, want %d", c.rule, c.members, c.state, g.Taken, taken)
		}
	}
	unread := &Group{Rule: several(2), Taken: 1, More: true}
	if role, others, _ := unread.Join(storage.Ready); role != Waits || !others {
		t.Errorf("beside members that wait and were not read: role %d, others %v", role, others)
	}
}

func TestGroupRule(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want Role
	}{
		{"done", inOrder.Left(storage.Done), NoRole},
		{"dead", inOrder.Left(storage.Dead), Blocks},
		{"dead, passed", passing.Left(storage.Dead), NoRole},
		{"dead, one of several", several(2).Left(storage.Dead), NoRole},

		{"put back for later", inOrder.PutBack(storage.Scheduled, false), Placed},
		{"put back", several(2).PutBack(storage.Ready, false), Placed},
		{"put back for later, one of several", several(2).PutBack(storage.Scheduled, false), NoRole},
		{"put back for later, and stays", several(2).PutBack(storage.Scheduled, true), Placed},

		{"blocked, due", inOrder.Changed(storage.Blocked, storage.Ready, Waits, false), Waits},
		{"blocked, of several, put off", several(2).Changed(storage.Blocked, storage.Scheduled, Waits, false), Waits},
		{"put off", inOrder.Changed(storage.Ready, storage.Scheduled, Placed, false), Placed},
		{"put off without a place, before a limit of one took effect", inOrder.Changed(storage.Scheduled, storage.Scheduled, NoRole, false), NoRole},
		{"moved", inOrder.Changed(storage.Ready, storage.Ready, Placed, true), Waits},
		{"put off, one of several", several(2).Changed(storage.Ready, storage.Scheduled, Placed, false), NoRole},
		{"moved while scheduled, one of several", several(2).Changed(storage.Scheduled, storage.Scheduled, Placed, true), NoRole},
		{"due, one of several", several(2).Changed(storage.Scheduled, storage.Ready, NoRole, false), Waits},
		{"due with a place", several(2).Changed(storage.Scheduled, storage.Ready, Placed, false), Placed},
	} {
		if c.got != c.want {
			t.Errorf("%s: role %d, want %d", c.what, c.got, c.want)
		}
	}
	all := map[storage.Lane]storage.Settings{{Queue: "q"}: {storage.SettingGroupLimit: 3, storage.SettingOrder: int64(storage.Turns)}}
	turns := GroupRuleOf(all, GroupName("q", "g"))
	if want := (GroupRule{Limit: 3, Pass: true, Turns: true}); turns != want {
		t.Errorf("%+v, want %+v", turns, want)
	}
	if got := GroupRuleOf(all, GroupName("other", "g")); got != inOrder {
		t.Errorf("%+v, want %+v", got, inOrder)
	}
}

func TestGroup_Alone(t *testing.T) {
	for members, want := range map[string]bool{
		"x1": false, "x1 w2": true, "x2 w1": false, "x1 x2 w3": false, "x1 d5 w2": false, "w2": false,
	} {
		if got := groupOf(t, inOrder, members, true).Alone(int64(members[1] - '0')); got != want {
			t.Errorf("%q: %v, want %v", members, got, want)
		}
	}
}

func TestGroup_Note(t *testing.T) {
	placed := Member{Job: 2, Role: Placed, State: storage.Ready}
	for _, c := range []struct {
		what  string
		group Group
		was   Role
		is    Member
		want  Group
	}{
		{"one that has a place leaves", Group{Taken: 1, Members: []Member{placed}}, Placed, Member{Job: 2}, Group{Members: []Member{}}},
		{"the other stays", Group{Taken: 2, Members: []Member{placed}}, Placed, Member{Job: 1}, Group{Taken: 1, Members: []Member{placed}}},
		{"one comes", Group{}, NoRole, placed, Group{Taken: 1, Members: []Member{placed}}},
		{
			"one changes its state", Group{Taken: 1, Members: []Member{{Job: 2, Role: Placed, State: storage.Running}}}, Placed, placed,
			Group{Taken: 1, Members: []Member{placed}},
		},
		{"one dies", Group{Taken: 1, Members: []Member{placed}}, Placed, Member{Job: 2, Role: Blocks}, Group{Dead: true, Members: []Member{{Job: 2, Role: Blocks}}}},
		{"the dead one is skipped", Group{Dead: true, Members: []Member{{Job: 1, Role: Blocks}, placed}, Taken: 1}, Blocks, Member{Job: 1}, Group{Members: []Member{placed}, Taken: 1}},
		{
			"one of two dead ones is skipped", Group{Dead: true, Members: []Member{{Job: 2, Role: Blocks}, {Job: 3, Role: Blocks}}}, Blocks, Member{Job: 2},
			Group{Dead: true, Members: []Member{{Job: 3, Role: Blocks}}},
		},
		{"one that waits goes", Group{Waiting: []int64{2, 3}}, Waits, Member{Job: 2}, Group{Waiting: []int64{3}}},
		{"one that waits is let in", Group{Waiting: []int64{2, 3}}, Waits, placed, Group{Waiting: []int64{3}, Taken: 1, Members: []Member{placed}}},
		{"one waits before the others", Group{Waiting: []int64{3, 4}}, NoRole, Member{Job: 2, Role: Waits}, Group{Waiting: []int64{2, 3, 4}}},
		{"one waits last", Group{Waiting: []int64{1}}, NoRole, Member{Job: 2, Role: Waits}, Group{Waiting: []int64{1, 2}}},
		{"one waits behind those that are not known", Group{Waiting: []int64{1}, More: true}, NoRole, Member{Job: 2, Role: Waits}, Group{Waiting: []int64{1}, More: true}},
		{
			"one waits before those that are not known", Group{Waiting: []int64{3}, More: true}, NoRole, Member{Job: 2, Role: Waits},
			Group{Waiting: []int64{2, 3}, More: true},
		},
	} {
		g := c.group
		g.Members, g.Waiting = slices.Clone(g.Members), slices.Clone(g.Waiting)
		if g.Note(c.was, c.is); fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", c.want) { // an empty slice is as good as none
			t.Errorf("%s:\n got %+v\nwant %+v", c.what, g, c.want)
		}
	}
}

func TestGroupName(t *testing.T) {
	if got := GroupName("q", ""); got != "" {
		t.Errorf("no group has the name %q", got)
	}
	name := GroupName("q", "g h")
	if queue, group := SplitGroup(name); name != "q g h" || queue != "q" || group != "g h" {
		t.Errorf("%q is group %q of queue %q", name, group, queue)
	}
}

func TestRegrouped(t *testing.T) {
	for _, c := range []struct {
		what        string
		mark        int64
		after, next string
		want        int64
	}{
		{"the first step is the last", RegroupDue, "", "", 0},
		{"the first step of several", RegroupDue, "", "b", RegroupBegun},
		{"a step between", RegroupBegun, "b", "c", RegroupBegun},
		{"the last step", RegroupBegun, "c", "", 0},
		{"the settings have changed since the first step", RegroupDue, "b", "c", RegroupDue},
		{"the settings have changed before the last step", RegroupDue, "c", "", RegroupDue},
		{"another has begun", RegroupBegun, "", "b", RegroupBegun},
		{"another has ended", 0, "b", "c", 0},
	} {
		if got := Regrouped(c.mark, c.after, c.next); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}
