// Package engine runs the loops of a worker: lease, execute, finish,
// heartbeat, reclaim, fire schedules. It joins package policy, which decides,
// to package storage, which keeps.
package engine
