// Package schedule says when a recurring job is due: it reads cron specs, finds
// their ticks, and decides what a missed tick is worth. It has no clock and no
// state, and writes nothing; time comes in as arguments. The one thing it reads
// is the time zone database, when a spec is parsed.
//
// # Specs
//
// Five fields (minute, hour, day of month, month, day of week), six with the
// second first, @yearly (@annually), @monthly, @weekly, @daily (@midnight),
// @hourly, and @every with a duration. Fields are those of
// [github.com/robfig/cron/v3], which parses them: lists, ranges, steps, names
// of months and weekdays, Sunday is 0. A spec that restricts both the day of
// month and the day of week is due when either matches, as in cron.
//
// A spec is bounded before the library sees it: at most 256 bytes, each number,
// range and step checked. A date that never comes (30 February) is refused.
//
// # Changes of the clock
//
// A tick is an instant, a whole second. Which ones a spec has depends on its
// hour field when the clocks of its zone are changed:
//
//	spec                          clocks go forward                   clocks go back
//	fixed hours: 30 2 * * *,      ticks in the gap come at the first  the first pass only
//	*/5 9-17 * * *, @daily        instant after it, as one
//	hours with * or /: 0 * * * *, no tick is lost: one in the gap     both passes
//	30 */2 * * *, @hourly         comes when the old clock would
//	                              have shown it
//	@every                        multiples of the interval since 1970-01-01T00:00:00Z
//
// The hours are fixed if their field has neither * nor a step: 9-17 and 0-23
// are fixed, 9-17/2 is not. By the second line, time elapsed counts: 0 * * * *
// is due each hour on both days, and 30 * * * * too, with nothing in between.
// Where the hours have a step, some ticks of such a day are closer together than
// on others; where clocks move by other than whole hours (Lord Howe Island, half
// an hour), some are closer or half an hour farther apart.
//
// @every needs no anchor of its own: its ticks are the same in all processes,
// and a restart shifts none. The zone has no influence on it.
//
// # Time zones
//
// A zone is a name of the IANA time zone database; the empty one means UTC.
// Devices may lack the database: a program that imports time/tzdata, or is
// built with -tags timetzdata, brings it along.
package schedule
