// Package sim holds tests only: a seeded simulation of all of errand, from the
// public API down to a real SQLite file, in a bubble of fake time.
//
// One seed is one history: jobs enqueued, handlers that do what handlers do,
// workers that stop and start, processes that are killed and machines whose
// power fails, clocks set right and wrong, a store that is slow or fails. A
// store in between takes down what SQLite has really committed, whatever the
// caller was told, and a model compares: what was acknowledged with what is
// there, each lease with the one before it, each outcome with what the handler
// returned. In the end the world is made friendly and all jobs must come to an end.
//
//	go test ./torture/sim                    200 seeds, some 5 s
//	ERRAND_TORTURE=1 go test ./torture/sim   10,000 seeds, on all cores: some 3 minutes on two
//	go test ./torture/sim -seed 7            one seed, with its history
//	go test ./torture/sim -long 8h -timeout 9h  new seeds for so long
//
// Even seeds are Full, odd ones Relaxed; a power cut loses no write here, that is
// what package torture is for.
//
// What a seed decides: all that is done from outside, with its parameters and
// the times between; what the handler of a job does in each attempt; the jitter of
// delays and holds; when the store may fail, and which of its calls of each sort do.
// What it does not decide: the order of goroutines that are ready at the same moment,
// which is left to the scheduler (on one thread, so that it seldom differs), and the
// random bits of IDs. So nearly all failures repeat, but one that does not is no less
// a failure.
package sim
