-- The schedules that have enqueued jobs which are live, and those of dead ones, which are live
-- again once they are redriven. Schedules are told by their name, since one that is declared
-- again has the jobs of that before. Keyed by job; bit 5 of options says that a schedule has
-- enqueued the job.
CREATE TABLE errand_origin (
  job      INTEGER PRIMARY KEY,
  schedule TEXT NOT NULL,
  live     INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX errand_origin_live ON errand_origin (schedule) WHERE live = 1;

-- Of the jobs that there are already, only the last one of a schedule is known. The last 12
-- digits of an ID are the key.
WITH RECURSIVE digit (schedule, text, n, job) AS (
  SELECT name, substr(hex(last_job), 21), 0, 0 FROM errand_schedule WHERE last_job IS NOT NULL
  UNION ALL SELECT schedule, text, n + 1, job * 16 + instr('123456789ABCDEF', substr(text, n + 1, 1)) FROM digit WHERE n < 12
)
INSERT OR IGNORE INTO errand_origin SELECT job, schedule, job IN (SELECT id FROM errand_job) FROM digit
WHERE n = 12 AND (job IN (SELECT id FROM errand_job) OR job IN (SELECT id FROM errand_dead));
UPDATE errand_job SET options = options | 32 WHERE id IN (SELECT job FROM errand_origin);
UPDATE errand_dead SET options = options | 32 WHERE id IN (SELECT job FROM errand_origin);

-- What tells the latest tick that is decided where the zone is another: its wall time and the
-- name of the zone.
ALTER TABLE errand_schedule ADD COLUMN wall TEXT;

-- A program that does not know of these would leave rows behind.
UPDATE errand_number SET n = 4 WHERE id = 0;
