// Package gate has gates for jobs that wait for something outside of the program:
// a network that works, free space, a clock that is right, a time of day.
//
// A gate is an [errand.Gate]: it says whether it is open, and if not, why. An
// application that is told what it waits for, by a modem or a network manager,
// needs only an [errand.Switch]. The gates of this package find out by themselves:
//
//	HTTP            a server returns the answer that only it knows
//	Dial            a TCP port accepts connections
//	DiskFree        a file system has enough free space
//	ClockPlausible  the wall clock can be right
//	Window          the time of day is within a window
//	NewCheck        whatever a function of the application checks
//
// [All], [Any] and [Not] combine gates, a Switch or one of the application's too.
//
// # Nobody waits, nobody asks
//
// A gate works only for those who call State and wait on the channel that it
// returns. A call makes a [Check] ask once: at once, or when the next request is
// due. The answer closes the channel, whether it is a new one or not. Who still
// waits calls State again, and so orders the next request. If nobody does, the
// Check rests: it has no goroutine and no timer. So there is nothing to close. A
// call for a status page counts like that of a worker.
//
// Each State returns at once, with the latest answer. A success that has become too old
// since nobody has waited is not believed: the gate is closed until the next answer,
// which is requested at once.
//
// A combined gate with several parts to watch has one goroutine, until one of them
// changes, or for a minute after the last call.
//
// # Tests
//
// The gates work in a bubble of testing/synctest. There a Check needs a function, a Dial
// or a Transport without a network. At the end of a bubble with a combined gate, sleep
// for a minute, so that its goroutine ends.
package gate
