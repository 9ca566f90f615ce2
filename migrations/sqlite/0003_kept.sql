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

-- A program that does not know of these would leave them behind.
UPDATE errand_number SET n = 3 WHERE id = 0;
