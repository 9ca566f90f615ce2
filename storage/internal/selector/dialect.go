package selector

import (
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

// Dialect is how a store names its tables, and what its SQL says otherwise. Texts have @name
// for a parameter.
type Dialect struct {
	// Param returns what stands for the parameter n of a text, the first being 1.
	Param func(n int, name string) string
	// Part returns the value of the parameter error for a text that is looked for.
	Part func(text string) any
	// Pairs is true if an index is entered at a pair of columns, by (a, b) > (x, y). Else that
	// is two queries, of which the first is for the rows that have the same a.
	Pairs bool
	// Apart is true if each of several queries that are united has an order and a limit
	// of its own, without which all its rows would be read and sorted.
	Apart bool

	Lanes string // the table of lanes
	// Contains is whether the text %s has the parameter error, without regard to ASCII case.
	Contains string
	// HasTag is whether the job with the key %s has the parameter tag.
	HasTag string
	// Failed is whether the last attempt of a live job j failed, see [storage.Waiting].
	Failed string

	// Live, Finished and Dead are the tables of jobs.
	Live, Finished, Dead Rows
	// Running are the rows of Live by an index of those that run, Few by one of those that are
	// scheduled, and Passed by key, whatever the conditions.
	Running, Few, Passed Rows
	// FinishedPassed is Passed for Finished.
	FinishedPassed Rows
	// Blocked are the jobs that wait in a group, whose name is the Mark, and Behind those that
	// wait behind the holder of their unique key.
	Blocked, Behind Rows
	// Tagged are all jobs with the parameter tag. Without a From no job has tags.
	Tagged Rows
	Group  Members
}

// Members are the jobs of the parameter group, each Rows in the order of keys. Rows are left out
// whose States do not meet the parameter states.
type Members struct {
	Live, Waiting  []Rows // Waiting are those of Live that are scheduled
	Finished, Dead []Rows
	All            []Rows
}

// Rows are jobs of a table, or of some that are joined, as the rows of j. Its fields are
// expressions for what is known of a job.
type Rows struct {
	From, Where                              string
	ID, Salt, State, Lane, Priority          string
	DueAt, CreatedAt, EndedAt, Reason, Cause string // the last three are empty if there are none
	Error                                    string // the last one
	Mark                                     string // what a place in the list has beside numbers; empty if nothing
	Waits                                    bool   // some are scheduled, ready or blocked
	States                                   []storage.State
}

// In returns the rows of r of which another condition is true too.
func (r Rows) In(where string) Rows {
	if r.Where != "" {
		where = r.Where + " AND " + where
	}
	r.Where = where
	return r
}

// match is whether a row matches the filter, but for its lane, its tags and its error, and for
// times that are bounded where an index is entered. Only for rows of several states, and where
// times of the enqueue are not known to match, are these looked at. A filter that bounds due times
// chooses none but jobs that wait, see [storage.Filter.Has]. What is quickly known comes first.
func (d *Dialect) match(r *Rows, states, created bool) (all []string) {
	if states {
		all = append(all, "@states >> "+r.State+" & 1 <> 0")
	}
	if created {
		all = append(all, within(r.CreatedAt, "created"))
	}
	bounded := strings.Contains(r.Where, "@low") || strings.Contains(r.Where, "@past")
	if r.Waits && !bounded {
		all = append(all, within(r.DueAt, "due"))
	}
	if r.EndedAt != "" && !bounded {
		all = append(all, within(r.EndedAt, "ended"))
	}
	if r.Reason != "" {
		all = append(all, "(@reason = '' OR "+r.Reason+" = @reason)")
	}
	if r.Cause != "" && !strings.Contains(r.Where, "@cause") {
		all = append(all, "(@cause = 0 OR "+r.Cause+" = @cause)")
	}
	return all
}

// hasError is whether a row has the error of the filter.
func (d *Dialect) hasError(r *Rows) string {
	return "(@error = '' OR " + strings.ReplaceAll(d.Contains, "%s", r.Error) + ")"
}

// hasTag is whether a row has the tag of the filter.
func (d *Dialect) hasTag(r *Rows) string {
	return "(@tag = '' OR " + strings.ReplaceAll(d.HasTag, "%s", r.ID) + ")"
}

// inLane are whether a row of the lane l matches the filter.
var inLane = []string{
	"(@queue = '' OR l.queue = @queue)", "(@kind = '' OR l.kind = @kind)",
	"(@queue <> '' OR @kind <> '' OR l.queue IS DISTINCT FROM '" + storage.BulkQueue + "')", // see [storage.Filter.Reaches]
}

// within is whether a time is in a period of the filter.
func within(time, period string) string {
	return time + " BETWEEN @" + period + "_from AND @" + period + "_last"
}

// direction is that of a walk by a time and then the key.
type direction int

const (
	up direction = iota
	down
)

// by returns the rows of r whose time is from low to before high and that come after the place
// at, key, in the order of time and key. Of two bounds of one column an index may be entered with
// one alone: so low and high, and what SQL bounds otherwise, past and until, are no further from
// each other than the place allows.
func (d *Dialect) by(r Rows, time string, order direction) []Rows {
	bounds := time + " >= @low AND " + time + " < @high"
	after, rest := ">", time+" > @past AND "+time+" < @high"
	if order == down {
		after, rest = "<", time+" >= @low AND "+time+" < @until"
	}
	if d.Pairs {
		return []Rows{r.In("(" + time + ", " + r.ID + ") " + after + " (@at, @key) AND " + bounds)}
	}
	return []Rows{r.In(time + " = @at AND " + r.ID + " " + after + " @key AND " + bounds), r.In(rest)}
}

// each returns all rows with another condition, in which %s is the key.
func each(all []Rows, where string) (out []Rows) {
	for _, r := range all {
		out = append(out, r.In(strings.ReplaceAll(where, "%s", r.ID)))
	}
	return out
}

const and = "\n  AND "

// listed is whether a row matches the filter of a list, but for its error. A list knows the lanes that
// match. If it has a tag, it is one of that tag or of a group, and if it has a time of the enqueue, one
// in the order of keys, see [storage.Filter.ByKey].
func (d *Dialect) listed(r *Rows, states bool) []string {
	match := d.match(r, states, strings.Contains(r.Where, "@above") && strings.Contains(r.Where, "@below"))
	if strings.Contains(r.Where, "@group ") {
		match = append(match, d.hasTag(r))
	}
	return match
}

// list is a query for what a list sees of rows, whether or not they match. The columns are those
// of [Glance], which the order counts. Without match no row is a hit.
func (d *Dialect) list(q search, match func(*Rows) []string) string {
	return d.unite(q, func(r *Rows) string {
		hit := "FALSE"
		if match != nil {
			if hit = "TRUE"; len(match(r)) > 0 {
				hit = "(" + strings.Join(match(r), and) + ") IS TRUE"
			}
		}
		return "SELECT " + strings.Join([]string{
			r.ID, r.State, r.Lane, r.Priority, r.DueAt, r.CreatedAt, or(r.EndedAt, "0"), or(r.Mark, "''"), hit,
		}, ", ") + "\nFROM " + r.From + " WHERE " + r.Where
	})
}

// step is a query for the jobs that match. The columns are those of [Chosen].
func (d *Dialect) step(q search) string {
	return d.unite(q, func(r *Rows) string {
		match := slices.Concat([]string{r.Where}, inLane, d.match(r, true, true), []string{d.hasError(r), d.hasTag(r)})
		// A lane that is missing is damage.
		return "SELECT " + r.ID + " AS id, " + r.Salt + " AS salt, " + r.CreatedAt + " AS created_at, " + or(r.EndedAt, "0") + " AS ended_at" +
			"\nFROM " + r.From + " LEFT JOIN " + d.Lanes + " l ON l.lane = " + r.Lane + " WHERE " + strings.Join(match, and)
	})
}

// unite returns the text of a search, of which query returns that of each of its rows.
func (d *Dialect) unite(q search, query func(*Rows) string) string {
	tail := ""
	if q.order != "" {
		tail = "\nORDER BY " + q.order + " LIMIT @limit"
	}
	var parts []string
	for i := range q.rows {
		part := query(&q.rows[i])
		if d.Apart && len(q.rows) > 1 {
			part = "(" + part + tail + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\nUNION ALL ") + tail
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
