package errand

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// optionsOf returns the options of a queue: its own, or else those of the longest prefix.
func (o *Options) optionsOf(queue string) (own QueueOptions) {
	if own, ok := o.Queues[queue]; ok {
		return own
	}
	longest := ""
	for name, options := range o.Queues {
		if isPrefix(name) && len(name) > len(longest) && storage.MatchQueue([]string{name}, strings.TrimSuffix(queue, "*")) {
			longest, own = name, options
		}
	}
	return own
}

// isPrefix reports whether a name stands for all queues that begin with it.
func isPrefix(name string) bool {
	_, ok := storage.QueuePrefix(name)
	return ok
}

// settingsOf returns what returns the settings of queues that the options do not list by name.
// It remembers those of a prefix once for all of its queues, unless a limit in them is of each
// queue: there may be very many queues.
func (q *Queue) settingsOf() func(string) engine.QueueSettings {
	type of struct{ prefix, queue string }
	var mu sync.Mutex
	known := map[of]engine.QueueSettings{}
	prefixes := slices.DeleteFunc(slices.Collect(maps.Keys(q.opts.Queues)), func(name string) bool { return !isPrefix(name) })
	return func(name string) engine.QueueSettings {
		prefix := engine.Listed(prefixes, name)
		mu.Lock()
		defer mu.Unlock()
		for _, key := range [...]of{{prefix: prefix}, {prefix, name}} {
			if s, ok := known[key]; ok {
				return s
			}
		}
		s, key := q.settings(name), of{prefix: prefix}
		if s.Budget != nil || s.Throttle != nil || s.Groups != nil {
			key.queue = name
		}
		known[key] = s
		return s
	}
}

// named returns the queues and prefixes that w was told to work for.
func (w *Worker) named() []string {
	if len(w.opts.Queues) == 0 {
		return []string{defaultQueue}
	}
	return w.opts.Queues
}

// allQueues returns the queues and prefixes that w works for, with those of the options that
// are within its prefixes: they have settings of their own.
func (w *Worker) allQueues() []string {
	all := slices.Clone(w.named())
	for _, name := range slices.Sorted(maps.Keys(w.queue.opts.Queues)) {
		if storage.MatchQueue(w.opts.Queues, name) && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// queueHandlers returns the handlers of all kinds of those of names that have one.
func (w *Worker) queueHandlers(names []string) map[string]engine.Handler {
	if len(w.queues) == 0 {
		return nil
	}
	all := map[string]engine.Handler{}
	for _, name := range names {
		if w.takesAll(name) {
			all[name] = w.queues[engine.Listed(w.named(), name)]
		}
	}
	return all
}

// takesAll reports whether a queue has a handler of all kinds.
func (w *Worker) takesAll(queue string) bool {
	_, all := w.queues[engine.Listed(w.named(), queue)]
	return all
}

// unused returns an error if a kind has a handler that no queue leaves anything to.
func (w *Worker) unused() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := func(queue string) bool { _, all := w.queues[queue]; return !all }
	if len(w.handlers) == 0 || slices.ContainsFunc(w.named(), left) {
		return nil
	}
	kind := slices.Min(slices.Collect(maps.Keys(w.handlers)))
	return &FieldError{Field: "handlers", Value: kind, Limit: "must have a queue of the worker without HandleQueue"}
}

// queueOrPrefix checks the name of a queue, or a prefix of such names with a "*" after it.
func (f *faults) queueOrPrefix(field, value string) {
	prefix, ok := strings.CutSuffix(value, "*")
	if ok && (prefix == "" || isName(prefix, maxName)) {
		return
	}
	if err := checkName(field, value); err != nil {
		f.field(field, value, `must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}, or the beginning of such names with "*" after it`)
	}
}

// queue checks the name of a queue, and that it is listed in strict options.
func (f *faults) queue(field, name string, o *Options) {
	if err := checkName(field, name); err != nil {
		f.add(err)
		return
	}
	if strings.HasPrefix(name, reserved) {
		f.field(field, name, fmt.Sprintf("must not begin with %q: such queues are of errand itself", reserved))
		return
	}
	f.listed(field, name, o)
}

// reserved begins the names of queues and kinds that are of errand itself. Jobs of the kind
// of a [DeadNotice] are those of an application.
const reserved = "errand."

func isReservedKind(kind string) bool { return strings.HasPrefix(kind, reserved) && kind != kindDead }

// mustBeFree panics if a kind is one for which an application cannot have a handler.
func mustBeFree(kind string) {
	if isReservedKind(kind) {
		panic(fmt.Sprintf("errand: Handle %q: the kind %s", kind, reservedKind))
	}
}

const reservedKind = `must not begin with "errand.", as kinds of errand itself do`

// listed checks that strict options list a queue, or a prefix of queues.
func (f *faults) listed(field, name string, o *Options) {
	if !o.Strict || name == storage.BulkQueue {
		return
	}
	// A prefix is within another one if what is before its "*" is.
	for known := range o.Queues {
		if storage.MatchQueue([]string{known}, strings.TrimSuffix(name, "*")) && (isPrefix(known) || !isPrefix(name)) {
			return
		}
	}
	const shown = 10
	names := slices.Sorted(maps.Keys(o.Queues))
	list := strings.Join(names[:min(len(names), shown)], ", ")
	if more := len(names) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	f.field(field, name, "must be listed in Options.Queues, as Options.Strict is set: "+list)
}

// listed checks the queues that a worker names against strict options.
func (w *Worker) listed() error {
	var f faults
	for i, name := range w.opts.Queues {
		f.listed(fmt.Sprintf("queues[%d]", i), name, &w.queue.opts)
	}
	if len(w.opts.Queues) == 0 {
		f.listed("queues", defaultQueue, &w.queue.opts)
	}
	return f.err()
}

// unthrottled checks that no queue of a prefix has a throttle: it would be of each.
func (w *Worker) unthrottled() error {
	var f faults
	for i, name := range w.opts.Queues {
		if isPrefix(name) && w.queue.settings(name).Throttle != nil {
			f.field(fmt.Sprintf("queues[%d]", i), name, "must not be a prefix while a throttle section is in effect for its queues")
		}
	}
	return f.err()
}
