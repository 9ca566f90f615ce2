// Package torture has only tests: they do to errand what machines do to it, and
// compare the database with what was acknowledged.
//
// Processes, each of them this test binary with a part to play, work on a database.
// They write each acknowledgement to a pipe before they do anything else. Then they
// are killed, stopped, cut off from their disk or given errors, and what they wrote
// is compared with the database, as the total-queue checker of Jepsen does:
//
//	lost        acknowledged, and not in the database, or no longer so: never
//	unexpected  in the database, and nobody asked for it: never
//	duplicates  a handler that ran again: only if its lease was lost, and counted
//
// Besides, the invariants of [sqlite.CheckInvariants] must hold, and SQLite's
// integrity_check must find nothing. The totals of each queue must be what the
// acknowledgements and the rows come to. If an answer was lost and the row of the
// job is gone, two numbers can be right: unsure counts these.
//
//	TestPowerCut      ext4 is shut down at random moments
//	TestCrashPoints   killed, or the power cut, at each system call that writes
//	TestIOErrors      each such call fails, or is cut short; syncs that lie
//	TestDiskFull      a file system of 64 MiB is filled
//	TestKill          kill -9 of several processes, again and again
//	TestKill_Runs     the same of one whose jobs are leased and ended in runs
//	TestKill_Finish   the same while jobs end in transactions of their handlers
//	TestKill_Compact  the same of a process that compacts the file
//	TestKill_OnDead   the same while jobs die: each death is followed by one job
//	TestKill_Webhooks the same of a process that sells, and delivers the events
//	TestKill_Publish  the same of one that publishes to an ordered topic
//	TestKill_Relay    the same of devices and their server, over a bad network
//	TestSharedThrottle two processes share a throttle: the receiver counts the starts
//	TestRecovery      kill -9, and how soon all jobs run again
//	TestStop          SIGSTOP for longer than a lease
//	TestRival         another program keeps the database locked
//	TestReader        another program reads, and pins the log
//	TestDamage        the file is copied, cut off, overwritten, taken away
//	TestTaken         the file, its log or its index is taken away or replaced
//	TestLocks         other code of the program opens and closes the file
//	TestSoak          all of that at once, for long, while memory is measured
//	TestAudit         the comparison finds what is wrong
//	TestGauge         the measurement finds what grows
//
// Tests that need root or loop devices run only with ERRAND_TORTURE=1, which also
// makes the others thorough:
//
//	ERRAND_TORTURE=1 go test ./torture/... -v
//
// Such a run has a mount namespace of its own, so that no mount outlives it,
// however it ends. With -long the random tests go on for the time given. ERRAND_TORTURE_SEED repeats the random choices of a run.
//
// The soak takes a moment, or as long as -soak says, for which go test needs a
// -timeout:
//
//	go test ./torture/ -run TestSoak -soak 1h -timeout 0 -v
//
// It logs a table with a line a minute. With ERRAND_TORTURE=1 there are power
// cuts and full disks too.
package torture
