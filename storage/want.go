package storage

import (
	"slices"
	"strings"
	"time"
)

// Want is jobs that a worker can take: ready jobs of these kinds in these queues,
// at most N. Jobs of other kinds, other queues or held lanes cost it nothing.
type Want struct {
	// Queues are names of queues, and prefixes: an element that ends in "*" stands for all
	// queues whose names begin with what is before the "*", also those whose first job is
	// yet to come. Queues of a prefix without ready jobs cost nothing either.
	Queues []string
	// Kinds are names of kinds. [AnyKind] stands for all kinds, also those whose first job is
	// yet to come, but for the kinds of [BulkQueue].
	Kinds []string
	// Except are lanes of Queues and Kinds whose jobs are not wanted. A Queue of them may
	// be a prefix. A Kind of them may be AnyKind.
	Except []Lane
	N      int
	// Each, if positive, is the most jobs of one queue that are leased for w. Jobs of the
	// queue that the same Exchange leases for other Wants count too; urgent ones do not.
	// EachOf takes the place of Each for single queues, also with zero for none.
	Each   int
	EachOf map[string]int
	// Min and Wait keep jobs back, so that many of one lane can be leased together: only
	// urgent jobs are leased from a lane with fewer than Min ready jobs, until the
	// earliest due of these has been due for Wait. If a lane matches several Wants, those
	// of the first count. If Min is below 2 or Wait is not positive, nothing is kept
	// back.
	Min  int
	Wait time.Duration
	// ByGroup, if positive, is how many jobs one call of a handler takes, all of one
	// queue, kind and group, or without a group. With AnyKind the kinds of a call may differ.
	// Jobs are leased for as many calls as N jobs fill. Leasing for w stops at the first job
	// that fits no call begun so far and cannot begin another.
	//
	// If the members of a group run one at a time, one that is leased brings those
	// blocked right behind it, in the order of keys, as far as N, ByGroup and the tokens
	// of a shared throttle go. It stops before the first that is of another kind, is not
	// due, has crashed, or has reached its StartBy or Deadline. With AnyKind one of another
	// kind stops it only if w does not want its lane, or if that is held. A member brings
	// none if it has crashed itself, if a hold has let it through, or if another member has a
	// place or blocks it. A job with WriteStart counts as one that has crashed. Members
	// that are brought do not count for Each.
	ByGroup int
}

// AnyKind stands for all kinds in a [Want].
const AnyKind = "*"

// OfAnyKind reports whether w wants jobs of all kinds.
func (w *Want) OfAnyKind() bool { return slices.Contains(w.Kinds, AnyKind) }

// Calls returns for how many calls the jobs of w are leased at most, if ByGroup is positive.
func (w *Want) Calls() int { return (max(w.N, 0) + w.ByGroup - 1) / w.ByGroup }

// KeepsBack reports whether w may keep jobs back.
func (w *Want) KeepsBack() bool { return w.Min > 1 && w.Wait > 0 }

// Matches reports whether w wants jobs of a kind in a queue.
func (w *Want) Matches(queue, kind string) bool {
	return w.hasKind(queue, kind) && MatchQueue(w.Queues, queue) && !w.excepts(queue, kind)
}

func (w *Want) hasKind(queue, kind string) bool {
	return slices.Contains(w.Kinds, kind) || w.OfAnyKind() && queue != BulkQueue
}

func (w *Want) excepts(queue, kind string) bool {
	return slices.ContainsFunc(w.Except, func(l Lane) bool { return (l.Kind == kind || l.Kind == AnyKind) && inQueue(l.Queue, queue) })
}

// HasRoom reports whether one more job of a queue may be leased for w, after n of it.
func (w *Want) HasRoom(queue string, n int) bool {
	if w.Each <= 0 {
		return true
	}
	most, ok := w.EachOf[queue]
	if !ok {
		most = w.Each
	}
	return n < most
}

// MatchQueue reports whether one of names is the name of a queue, or a prefix of it as in
// [Want].
func MatchQueue(names []string, queue string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return inQueue(name, queue) })
}

// QueuePrefix returns what is before the "*" if name is a prefix of queues, as in [Want].
func QueuePrefix(name string) (prefix string, ok bool) { return strings.CutSuffix(name, "*") }

func inQueue(name, queue string) bool {
	prefix, ok := QueuePrefix(name)
	return name == queue || ok && strings.HasPrefix(queue, prefix)
}
