// Package errandtest is for tests of programs that use errand: of what they enqueue, and of
// what their handlers do.
//
//   - [New] opens a queue of the test, and looks for faults in its file at the end. [NewOn] does
//     so on a store of the test's own, such as one on the application's database.
//   - [RequireEnqueued] and [RequireNone] look at what was enqueued, and [RequireEnqueuedTx]
//     and [RequireNoneTx] at what a transaction enqueues, before it commits.
//   - [Perform] runs one attempt of a handler, and returns all that becomes of it.
//   - [Drain] runs a worker until nothing is left to do, on request also what is due later.
//   - [Crash] shows what the next process finds if this one is killed.
//
// Handlers run on real workers and real files: nothing is imitated. A fault of the test, such
// as an option that is not valid, ends the test as a failed check does.
//
// Any number of tests can use the package at a time, each with queues of its own. The functions
// end a test by FailNow, and so belong into the goroutine of the test. Only [Crash] is for
// handlers too: there, an error also fails the attempt.
//
// The package works with [testing.T.Parallel], and in a bubble of testing/synctest. In a
// bubble, time passes for the whole program when [Drain] moves it on. Elsewhere only the clock
// of the queue moves on: what is due is done, but timers of handlers, throttles and deadlines
// of contexts take the time that they take. A handler that looks at the time itself should
// ask [errand.Queue.Clock].
package errandtest
