-- Number 28 of a lane in errand_number is how many attempts have failed, since there is this table.

-- What the numbers of lanes were at the start of each five minutes in which they have changed: at
-- is that start. numbers is the version of their form, 1, and then of each lane, all as varints:
-- its number, how many jobs were enqueued, done, cancelled, expired and dead ever, how many
-- attempts have failed ever, how many jobs were scheduled, ready, running, blocked and dead, and when
-- the ready job was due that had waited longest, or 0. The lanes after the first 200 are one, 201. Nothing is in it if the disk was nearly full. After a day only the first row of an hour is kept, after
-- seven days none.
CREATE TABLE errand_sample (
  at      INTEGER PRIMARY KEY,
  numbers BLOB NOT NULL
) STRICT;
