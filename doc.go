// Package errand is an embedded, durable job queue on SQLite.
//
// Jobs live in a SQLite file: one of their own, or the application's. A worker
// leases the jobs that are due and calls their handlers. A failed job is retried by
// a four-phase delivery policy. A job without retries left goes to the dead
// letters, from which it can be redriven. There is no server, no broker and no cgo.
// README.md lists the pages of the folder docs by question. Package errandtest is for tests.
//
//	q, err := errand.Open(ctx, "jobs.db", nil)
//	w := errand.NewWorker(q, nil)
//	errand.Handle(w, func(ctx context.Context, job *errand.Job[SendEmail]) error {
//		return send(ctx, job.Args)
//	})
//	_, err = q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil)
//	err = w.Run(ctx) // until ctx ends
//
// # What to call
//
//   - To enqueue: [Queue.Enqueue], EnqueueMany; EnqueueTx, EnqueueManyTx inside [Queue.Tx]; with [JobOptions].
//   - To handle: [NewWorker], [Handle], [HandleMany], [HandleRaw], [HandleQueue], [Worker.Run]. What a
//     handler returns says how it ended, see below; [Job.Finish], CompleteTx and Then go further.
//     [Job.Checkpoint] keeps where a long job has got to, [Await] waits for its result.
//   - Policies and limits: [Options], [HandlerOptions]; [Settings] by [Queue.Configure]; Budgets.
//   - To look: [Queue.Job], Jobs, Counts, Stats, Totals, Groups, Why, PolicyOf, Workers, Holds, Settings,
//     Health, Clock, Version, History, Audit; events by [Queue.Subscribe].
//   - To steer: [Queue.Pause], Resume, Paused, Hold, Release, Cancel, CancelTx, CancelAll, Change, RunNow,
//     Delete, SkipHead, ReleaseUnique, ReleaseUniqueArgs. Many jobs, in the background: [Queue.StartBulk], Bulks.
//   - Dead letters: [Queue.DeadLetters]. Schedules: [Queue.Schedule], [Queue.Schedules].
//   - The file: [Open], [New], [Queue.Backup], Compact, Close.
//
// # Words and states
//
// A job has a kind, which selects its handler, and waits in a queue. An attempt is
// one run of the handler. A retry is an attempt after a failure; its index alone
// decides the delay. A lease is the right to run a job for a time; a heartbeat
// extends it while the handler runs. A worker is a pool of handlers in a process.
// An instance is a store that has the database open, in one process.
//
// A job is in exactly one [State], and every transition is one transaction:
//
//	scheduled   due later: delayed, or waiting for its retry
//	ready       due, waiting for a worker
//	running     leased
//	blocked     waiting for another job of its group, or with its unique key
//	done, cancelled, expired   finished; kept for Options.Retention
//	dead        in the dead letters, until redriven or purged
//
// Ready jobs are leased by priority, then by due time, then in the order in which
// they were enqueued. A worker leases up to 480 jobs ahead of its handlers: a job
// enqueued later waits for these, whatever its priority. A job has four counters:
// attempts; retries, which only failures advance; crashes in a row; snoozes.
//
// # Handlers
//
// What a handler returns is its verdict, also when wrapped:
//
//	nil                  done
//	Permanent(err)       dead at once
//	RetryAfter(d, err)   failed: a retry, not before d
//	Unavailable(err)     again later; a failure only if others fare better
//	Snooze(d, err)       again after d; no failure
//	Cancel(err)          finished as cancelled
//	any other error      failed; classified by rules, see below
//
// [VerdictOf] reads the verdict from an error, for tests. A panic and runtime.Goexit are
// failed attempts; their stack is kept. Args that do not decode fail the attempt; without
// retries left the job is dead with reason decode. Other errors are classified by the
// rules of package policy, or by those of the kind or queue: an HTTP status 404 is
// permanent; 429 and 503 are retried, not before their Retry-After. The handler's context
// ends with one of these causes: [ErrCancelled], [ErrLeaseLost], [ErrShutdown] or
// [context.DeadlineExceeded]. An error that comes from that end is never classified as
// permanent or unavailable.
//
// The delivery policy in effect is the job's own, else its kind's, else its queue's, else
// that of [Options]. It is looked up when the attempt fails. A policy may be a retry
// policy or a whole document, as Amazon SNS has them; each section of a document is
// looked up in this order by itself. A queue's document can disable those of kinds and
// jobs. The throttle of a queue or kind limits the attempts a second of all workers of a
// Queue together. After an error of class throttled, the document's policy for throttling
// applies, if any; the retry index goes on counting.
//
// # Guarantees
//
//  1. An acknowledged Enqueue survives kill -9, a crash of the system and a power
//     cut. With [Relaxed] the last commits may be lost in the latter two cases.
//  2. At least once. An attempt that has not failed is repeated only if its handler
//     snoozed, if a stop cut it off, if its lease was lost, or if a full disk has no
//     room for the jobs that follow; late outcomes are refused. Handlers must bear that.
//  3. A job whose process dies while its handler runs comes back as soon as a worker
//     recovers it, 1 s after its start at the earliest. It is dead with reason
//     crashed after [WorkerOptions].MaxCrashes crashes in a row, or after the first
//     if its policy has no retries: a poison job cannot loop. A new [Job.Checkpoint]
//     begins that count anew, 100 times at most. No crash is counted
//     for a job not yet started, a reboot, a power cut or a kill during a shutdown.
//  4. No job starts before it is due, on the queue's clock.
//  5. Shutdown, an unknown kind, a pause, an empty retry budget, a snooze and an
//     outage that all jobs of a kind and queue meet use up no retry.
//  6. A dead letter keeps args, headers, reason, last error, history, policy and counts.
//     Only Purge, Delete and a cap with [EvictDead] delete it; caps report and count it.
//  7. A job enqueued in the application's transaction commits or vanishes with
//     it: [Queue.Tx], [Queue.EnqueueTx]. So does the end of a job: [Job.CompleteTx].
//  8. Unique keys hold under concurrency. A dead letter whose key another job holds
//     cannot be redriven, and stays dead.
//  9. Bad input is refused with a [FieldError] for each fault, and nothing is
//     written. A full disk, a locked file and a damaged file cause the typed errors
//     of this package, and lose nothing that was acknowledged.
//
// # Schedules and the clock
//
// Each tick of a schedule, see [Queue.Schedule], becomes one job, however many
// processes there are. [Queue.Schedules] lists and controls schedules. The rules for
// daylight saving, missed ticks and overlap are in docs/schedules.md. Due times
// refer to the queue's clock, see [ClockState]. It is the wall clock, but a wall
// clock that was set back is believed only after ten minutes. Delays that began in
// the wrong time then count anew.
//
// # Limits and defaults
//
//	args                  256 KiB of JSON    Options.MaxArgs
//	headers               16 KiB of JSON     Options.MaxHeaders
//	kinds, queues, schedules  [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}
//	priority              -100 to 100, higher first
//	unique key            1,024 bytes, per kind
//	checkpoint, result    64 KiB of JSON
//	JSON                  nested at most 1,000 deep
//	jobs per EnqueueMany  10,000
//	error text, stack     8 KiB, 16 KiB; longer ones are cut
//	history               the last 20 failures and changes of args
//	finished jobs         kept for 24 h      Options.Retention
//	policy                27 retries, 6.6 to 13.1 h  policy.Default
//	concurrency           16                 WorkerOptions.Concurrency
//	lease                 30 s               WorkerOptions.LeaseDuration
//	grace                 8 s                WorkerOptions.Grace
//
// # Shutdown
//
// [Worker.Run] stops when its context ends, or when [Worker.Shutdown] is called. It
// takes no more jobs, returns those that it has not started, and lets handlers run
// for the grace. Then it cancels their contexts with [ErrShutdown], waits a little,
// and writes the outcomes. From the beginning of the stop on no error is a failure: the
// job was interrupted, and runs again, with nothing used up. See docs/retries.md. Run
// returns when all that it started has ended, unless a handler ignores its context:
// that is logged, and Run returns [ErrStuck]. Close the queue after that.
package errand
