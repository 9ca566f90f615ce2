package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	queue "github.com/errandq/errand"
)

const (
	// leastPrefix is how much of an ID is enough to name a job, so that a number that was
	// meant for something else is not.
	leastPrefix = 4
	// mostNamed is how many jobs an error names that a prefix may mean.
	mostNamed = 10
	// timeDigits is how many digits of an ID are the time of its job, in milliseconds.
	timeDigits = 12
	idForm     = "00000000-0000-0000-0000-000000000000"
)

// jobIDs returns the IDs that arguments name in a file: nil for none. An argument may be
// the beginning of an ID that no other job has.
func (t *tool) jobIDs(ctx context.Context, path string, args []string) (ids []queue.ID, err error) {
	begun := map[int]string{} // arguments that are the beginning of an ID
	for i, arg := range args {
		id, err := parseID(arg)
		if err != nil {
			if begun[i], err = idPrefix(arg); err != nil {
				return nil, err
			}
		}
		ids = append(ids, id)
	}
	if len(begun) == 0 {
		return ids, nil
	}
	err = t.reading(ctx, path, func(q *queue.Queue) error {
		for _, i := range slices.Sorted(maps.Keys(begun)) {
			id, err := beginsWith(ctx, q, begun[i])
			if err != nil {
				return err
			}
			ids[i] = id
		}
		return nil
	})
	return ids, err
}

// parseID reads an ID as IDs are written, or as the 32 digits of [queue.Origin].
func parseID(arg string) (queue.ID, error) {
	if raw, err := hex.DecodeString(arg); err == nil && len(raw) == len(queue.ID{}) {
		return queue.ID(raw), nil
	}
	return queue.ParseID(arg)
}

// idPrefix returns the beginning of an ID as IDs are written.
func idPrefix(arg string) (string, error) {
	prefix := strings.ToLower(arg)
	ok := len(prefix) >= leastPrefix && len(prefix) < len(idForm)
	for i, r := range prefix {
		ok = ok && (r == '-') == (idForm[i] == '-') && strings.ContainsRune("0123456789abcdef-", r)
	}
	if !ok {
		return "", fmt.Errorf("id %.50q: must be the ID of a job, 36 characters or 32 digits, or its first %d characters or more", arg, leastPrefix)
	}
	return prefix, nil
}

// beginsWith returns the ID of the only job whose ID begins with prefix.
func beginsWith(ctx context.Context, q *queue.Queue, prefix string) (id queue.ID, err error) {
	filter, ok := createdWithin(prefix)
	var found []string
	o := queue.ListOptions{Limit: 1000}
	for ok && len(found) <= mostNamed {
		page, err := q.Jobs(ctx, filter, &o)
		if err != nil {
			return id, err
		}
		for _, j := range page.Jobs {
			if strings.HasPrefix(j.ID.String(), prefix) {
				id = j.ID
				found = append(found, fmt.Sprintf("%v (%s, kind %s)", j.ID, j.State, j.Kind))
			}
		}
		o.After, ok = page.Next, page.Next != ""
	}
	switch n := len(found); {
	case n == 0:
		return id, fmt.Errorf("job %s: %w", prefix, queue.ErrNotFound)
	case n > mostNamed:
		return id, fmt.Errorf("id %q: more than %d jobs begin so, among them %s", prefix, mostNamed, strings.Join(found[:mostNamed], ", "))
	case n > 1:
		return id, fmt.Errorf("id %q: %d jobs begin so: %s", prefix, n, strings.Join(found, ", "))
	}
	return id, nil
}

// createdWithin returns what jobs were enqueued at the times of the IDs that begin with a
// prefix; false if that is far from now.
func createdWithin(prefix string) (f queue.JobFilter, ok bool) {
	digits := strings.ReplaceAll(prefix, "-", "")
	digits = digits[:min(len(digits), timeDigits)]
	first, err := strconv.ParseInt(digits, 16, 64)
	if err != nil {
		return f, false
	}
	rest := 4 * (timeDigits - len(digits))
	f.CreatedFrom, f.CreatedBefore = time.UnixMilli(first<<rest), time.UnixMilli((first+1)<<rest)
	if f.CreatedBefore.Year() > 9999 {
		f.CreatedBefore = time.Time{}
	}
	return f, f.CreatedFrom.Year() <= 9999
}
