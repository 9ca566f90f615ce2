// Package rules decides what becomes of jobs, once for all stores. A store reads what a
// decision depends on, and locks it if others may write at the same time; a rule answers with
// what is to change, and the store writes that.
//
// It is pure: it knows no SQL, clock, random number or goroutine. What a [storage.Store]
// promises is said there; the comments here say how that comes about.
package rules
