// Package torture holds tests only: they do to errand what machines do to it,
// and count what is left.
//
// Real processes, this test binary itself with a part to play, work on a
// database and say on a pipe what they have been told, each acknowledgement
// before anything else happens. Then they are killed, stopped, cut off from
// their disk or given errors, and what they said is compared with the database,
// as the total-queue checker of Jepsen does:
//
//	lost        acknowledged, and not there, or not so any more: never
//	unexpected  there, and nobody ever asked for it: never
//	duplicates  a handler that ran again: only where a lease was lost, and counted
//
// besides the rules that each database must obey after anything: each job in
// exactly one table, kept counts equal to real ones, integrity_check clean.
//
// What needs root, loop devices or a debugger's rights runs only with
// ERRAND_TORTURE=1. Such a run lives in a mount namespace of its own, so that
// nothing that it mounts outlives it, however it ends. With -long the random
// tests go on for the time given. ERRAND_TORTURE_SEED repeats a run.
package torture
