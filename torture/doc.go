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
//	TestPowerCut      ext4 is shut down at random moments
//	TestCrashPoints   killed, or the power cut, at each system call that writes
//	TestIOErrors      each such call fails, or is cut short; syncs that lie
//	TestDiskFull      a file system of 64 MiB is filled
//	TestKill          kill -9 of several processes, again and again
//	TestRecovery      kill -9, and how soon all runs again
//	TestStop          SIGSTOP for longer than a lease
//	TestRival         another program keeps the database locked
//	TestReader        another program reads, and pins the log
//	TestDamage        the file is copied, cut off, overwritten, taken away
//	TestLocks         other code of the program opens and closes the file
//	TestSoak          all of that at once, for long, while memory is measured
//	TestAudit         what is there to find all this out finds it
//	TestGauge         and what grows
//
// What needs root or loop devices runs only with ERRAND_TORTURE=1, which also
// makes the others thorough:
//
//	ERRAND_TORTURE=1 go test ./torture/... -v
//
// Such a run lives in a mount namespace of its own, so that nothing that it
// mounts outlives it, however it ends. With -long the random tests go on for
// the time given. ERRAND_TORTURE_SEED repeats the random choices of a run.
//
// The soak takes a moment, or as long as it is told to, and go test must let it:
//
//	go test ./torture/ -run TestSoak -soak 1h -timeout 0 -v
//
// It logs a table with a line a minute. With ERRAND_TORTURE=1 there are power
// cuts and full disks too.
package torture
