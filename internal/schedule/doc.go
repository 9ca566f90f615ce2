// Package schedule computes when a recurring job is due: it parses cron specs, finds
// their ticks, and decides about missed ticks. It has no clock and no state; times
// are arguments. It reads only the time zone database, when a spec is parsed.
//
// # Specs
//
// Five fields (minute, hour, day of month, month, day of week), six with the
// second first, @yearly (@annually), @monthly, @weekly, @daily (@midnight),
// @hourly, and @every with a duration. Fields are those of
// [github.com/robfig/cron/v3], which parses them: lists, ranges, steps, names
// of months and weekdays, Sunday is 0. A spec whose day of month and day of week
// are both neither * nor ? is due when either matches. Vixie's cron takes */2 for a *
// there, and has both match.
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
// Hours are fixed if their field has neither * nor a step: 9-17 and 0-23 are fixed,
// 9-17/2 is not. In the second case elapsed time counts: 0 * * * * is due each hour
// on both days, and so is 30 * * * *. With a step in the hours, some ticks of such a
// day are closer together than on other days. Where clocks move by half an hour (Lord
// Howe Island), some are closer together or half an hour farther apart.
//
// @every needs no anchor: its ticks are the same in all processes, a restart shifts
// none, and the zone has no influence.
//
// # Time zones
//
// A zone is a name of the IANA time zone database; the empty one means UTC.
// Devices may lack the database: a program that imports time/tzdata, or is
// built with -tags timetzdata, brings it along.
package schedule
