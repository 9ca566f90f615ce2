-- What attempts have kept of few jobs, in whatever table these are. Keyed by job, never moved;
-- bit 4 of options says that there may be a row.
--   checkpoint           where the job has got to; NULL if nowhere, or once it has ended
--   resets               how often a checkpoint has set its crashes to zero
--   done, total, note    its progress at the last checkpoint, or at its end, and at, when that was;
--                        at is 0 if there is none
--   result               of a job that is done; NULL if it has none
CREATE TABLE errand_kept (
  job        INTEGER PRIMARY KEY,
  resets     INTEGER NOT NULL DEFAULT 0,
  at         INTEGER NOT NULL DEFAULT 0,
  done       INTEGER NOT NULL DEFAULT 0,
  total      INTEGER NOT NULL DEFAULT 0,
  note       TEXT NOT NULL DEFAULT '',
  result     BLOB,
  checkpoint BLOB
) STRICT;

-- How many jobs were enqueued in each lane, of which there are other numbers beside it: 24 to 26
-- are how many that were cancelled, have expired or died are no longer in the table of their
-- state, and 27 how many have come to the lane otherwise, less those that have gone so.
INSERT INTO errand_number
SELECT lane * 32 + 23, COALESCE((SELECT SUM(n) FROM errand_number WHERE id IN (lane * 32 + 1, lane * 32 + 2,
lane * 32 + 4, lane * 32 + 5, lane * 32 + 6, lane * 32 + 7, lane * 32 + 8, lane * 32 + 21)), 0)
+ (SELECT COUNT(*) FROM errand_job j WHERE state = 3 AND j.lane = l.lane) FROM errand_lane l;

-- A program that does not know of these would leave them behind.
UPDATE errand_number SET n = 3 WHERE id = 0;
