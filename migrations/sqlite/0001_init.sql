-- The tables of errand. Times are microseconds since 1970 in UTC, durations
-- microseconds. States: 1 scheduled, 2 ready, 3 running, 4 done, 5 cancelled,
-- 6 dead; a partial index is used only where the query has the literal.
--
-- What is called reserved is not written yet, and nothing reads it. What is part of
-- a key has to be here from the start: to change a key is to build its table anew.
-- Columns are here because they are cheap only now: at the end of a row one that is 0
-- or NULL costs a byte, but ALTER TABLE ADD COLUMN checks each row of a STRICT table
-- inside the migration (200,000 rows: 218 ms; 0.3 ms if the table is not STRICT).
-- 7 is blocked, 8 expired.

-- The numbers that commits change, in one table so that a commit writes one
-- page for all of them. The id is lane * 32 + state for how many jobs are in that
-- state of that lane, kept so that nothing counts rows but those of running jobs,
-- which are few. States are 0 to 15.
-- From lane * 32 + 16 on there are other numbers of the lane:
--   16 bytes         of args and headers of its scheduled and ready jobs
--   17 success       the token of the last attempt that ended well, noted from the
--                    first on that could not reach the other side; else there is none
--   18 success_at    when an attempt last ended well, less than a second off
--   19 failure       the key of the job that failed last
--   20 failure_at    when that was
--   21 evicted       how many of its jobs were deleted to make room
--   22 dropped       how many of its dead letters were deleted, as there were too many
-- Ids below 32 are of the database as a whole:
--   0 min_writer     the oldest schema version that may write
--   1 next_job       the next key
--   2 next_token     the next lease token, revision of a schedule, cause or epoch
--   3 next_instance  the next instance
--   4 generation     rises when lanes, holds, settings, instances or schedules change
--   5 clock          the latest time that a write was given
--   6 shifting       1 while jobs may still have to be moved because that was wrong
--   7 asked          rises when a running job is asked to stop
--   8 windowed       there since errand_option has had a start_by or a deadline
--   9 unset          the generation since which no setting was deleted
CREATE TABLE errand_number (
  id INTEGER PRIMARY KEY,
  n  INTEGER NOT NULL
) STRICT;
INSERT INTO errand_number VALUES (0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 0), (6, 0), (7, 0);

CREATE INDEX errand_number_success ON errand_number (id) WHERE id % 32 = 17;

-- The same for people, and for checks.
CREATE VIEW errand_meta AS SELECT
  (SELECT n FROM errand_number WHERE id = 0) AS min_writer,
  (SELECT n FROM errand_number WHERE id = 1) AS next_job,
  (SELECT n FROM errand_number WHERE id = 2) AS next_token,
  (SELECT n FROM errand_number WHERE id = 3) AS next_instance,
  (SELECT n FROM errand_number WHERE id = 4) AS generation,
  (SELECT n FROM errand_number WHERE id = 5) AS clock,
  (SELECT n FROM errand_number WHERE id = 6) AS shifting,
  (SELECT n FROM errand_number WHERE id = 7) AS asked;
CREATE VIEW errand_count AS SELECT id / 32 AS lane, id % 32 AS state, n
FROM errand_number WHERE id >= 32 AND id % 32 < 16
UNION ALL SELECT lane, 3, COUNT(*) FROM errand_job WHERE state = 3 GROUP BY lane;

-- A lane stands for one kind in one queue.
CREATE TABLE errand_lane (
  lane  INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  kind  TEXT NOT NULL,
  UNIQUE (queue, kind)
) STRICT;

-- Nothing of a held lane is leased. kind is empty for all kinds of a queue, and
-- queue for a kind in all queues. A pause is a hold of a queue with reason
-- 'paused' and no end. delay is as in errand_job, for until. With probe 1 the hold
-- is in force until it is released, and from until on lets one job through at a
-- time, by moving until to the end of that lease. It has let job through last, at
-- let_at, under the lease with this token. hanging of those before are not waited for.
CREATE TABLE errand_hold (
  queue  TEXT NOT NULL,
  kind   TEXT NOT NULL,
  reason TEXT NOT NULL,
  since  INTEGER NOT NULL,
  until  INTEGER,
  delay  INTEGER NOT NULL DEFAULT 0,
  probe  INTEGER NOT NULL DEFAULT 0,
  who    TEXT NOT NULL DEFAULT '',
  detail TEXT NOT NULL DEFAULT '',
  job    INTEGER NOT NULL DEFAULT 0,
  token  INTEGER NOT NULL DEFAULT 0,
  let_at INTEGER NOT NULL DEFAULT 0,
  hanging INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, kind, reason)
) STRICT, WITHOUT ROWID;

-- What all processes obey, producers too. kind is empty for all kinds of a queue,
-- queue for a kind in all queues, both for the whole database. None is 0. regroup of a
-- queue is no setting: it is there from when those of its groups change until all of
-- its groups are as they say; 2 once a pass over them has begun. changed is the generation
-- since which the value is this, so that only what is new need be read.
CREATE TABLE errand_setting (
  queue TEXT NOT NULL,
  kind  TEXT NOT NULL,
  name  TEXT NOT NULL,
  value INTEGER NOT NULL,
  changed INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, kind, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX errand_setting_changed ON errand_setting (changed);

-- The buckets of tokens of queues and kinds with a shared throttle, whose other name is
-- empty. full is when the bucket is full if no token is taken.
CREATE TABLE errand_bucket (
  queue TEXT NOT NULL,
  kind  TEXT NOT NULL,
  full  INTEGER NOT NULL,
  PRIMARY KEY (queue, kind)
) STRICT, WITHOUT ROWID;

-- Policies that jobs carry, each stored once. refs is how many columns of jobs
-- have its number, finished and dead ones included; without any it goes some time
-- later. The highest number stays, so that none comes twice.
CREATE TABLE errand_policy (
  policy INTEGER PRIMARY KEY,
  refs   INTEGER NOT NULL DEFAULT 0,
  doc    TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX errand_policy_unused ON errand_policy (policy) WHERE refs = 0;

-- Processes that lease, each with a lock file beside the database.
CREATE TABLE errand_instance (
  instance INTEGER PRIMARY KEY,
  name     TEXT NOT NULL,
  boot     TEXT NOT NULL,
  lease    INTEGER NOT NULL,
  since    INTEGER NOT NULL
) STRICT;

-- Live jobs. args is NULL if args and headers are in errand_payload. delay is
-- how much of due_at was counted from the time when it was set, 0 if it was
-- given as a date, and -1 if the job is blocked and was due when it was blocked. fate is what a reclaimer found out about the attempt, until
-- the job is finished. options, here and in the next two tables: bit 0 if
-- errand_option has a row of the job, bit 1 if errand_tag has, bit 2 if the job was
-- redriven, bit 3 if errand_history may have edits of it.
CREATE TABLE errand_job (
  id         INTEGER PRIMARY KEY,
  lane       INTEGER NOT NULL,
  state      INTEGER NOT NULL,
  priority   INTEGER NOT NULL,
  due_at     INTEGER NOT NULL,
  delay      INTEGER NOT NULL DEFAULT 0,
  token      INTEGER NOT NULL DEFAULT 0,
  instance   INTEGER NOT NULL DEFAULT 0,
  until      INTEGER NOT NULL DEFAULT 0,
  fate       INTEGER NOT NULL DEFAULT 0,
  cancelling INTEGER NOT NULL DEFAULT 0,
  attempt    INTEGER NOT NULL DEFAULT 0,
  retry      INTEGER NOT NULL DEFAULT 0,
  crashes    INTEGER NOT NULL DEFAULT 0,
  snoozes    INTEGER NOT NULL DEFAULT 0,
  salt       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  timeout    INTEGER NOT NULL DEFAULT 0,
  policy     INTEGER NOT NULL DEFAULT 0,
  unique_key TEXT,
  headers    BLOB,
  args       BLOB,
  options    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX errand_job_scheduled ON errand_job (due_at) WHERE state = 1;
CREATE INDEX errand_job_ready ON errand_job (lane, priority DESC, due_at) WHERE state = 2;
CREATE INDEX errand_job_running ON errand_job (instance) WHERE state = 3;
-- An index costs each insert, lease and delete about 0.3 us even where no row is in
-- it, 3 to 8 % of a drain, and a column a byte, of which 3 are 2 % of a row. So there
-- is no (lane, due_at) WHERE state = 1 for work on the retries of one lane: to pass by
-- all jobs takes 0.5 s for a million, outside of the writer, and none if few wait. And
-- this comes with what needs it, by one pass over the table: rank, due_at less what the
-- priority is worth, for aging.

-- Jobs that are ready, and go before all others whatever holds their lane.
CREATE TABLE errand_urgent (
  job INTEGER PRIMARY KEY
) STRICT;

-- Finished jobs, until purge_at.
CREATE TABLE errand_finished (
  id         INTEGER PRIMARY KEY,
  lane       INTEGER NOT NULL,
  state      INTEGER NOT NULL,
  priority   INTEGER NOT NULL,
  due_at     INTEGER NOT NULL,
  token      INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  retry      INTEGER NOT NULL DEFAULT 0,
  crashes    INTEGER NOT NULL DEFAULT 0,
  snoozes    INTEGER NOT NULL DEFAULT 0,
  salt       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  purge_at   INTEGER NOT NULL,
  timeout    INTEGER NOT NULL DEFAULT 0,
  policy     INTEGER NOT NULL DEFAULT 0,
  unique_key TEXT,
  error      TEXT,
  headers    BLOB,
  args       BLOB,
  options    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX errand_finished_purge ON errand_finished (purge_at);

-- Dead letters. in_effect is the policy that was in effect when the job died,
-- policy the job's own; cause is that in errand_cause, 0 for none.
CREATE TABLE errand_dead (
  id         INTEGER PRIMARY KEY,
  lane       INTEGER NOT NULL,
  priority   INTEGER NOT NULL,
  due_at     INTEGER NOT NULL,
  token      INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  retry      INTEGER NOT NULL,
  crashes    INTEGER NOT NULL,
  snoozes    INTEGER NOT NULL,
  salt       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  timeout    INTEGER NOT NULL,
  policy     INTEGER NOT NULL,
  in_effect  INTEGER NOT NULL,
  unique_key TEXT,
  reason     TEXT NOT NULL,
  error      TEXT NOT NULL,
  headers    BLOB,
  args       BLOB,
  options    INTEGER NOT NULL DEFAULT 0,
  cause      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX errand_dead_ended ON errand_dead (ended_at, id);
CREATE INDEX errand_dead_lane ON errand_dead (lane, ended_at);
CREATE INDEX errand_dead_cause ON errand_dead (cause, ended_at) WHERE cause <> 0;

-- Why jobs of a lane have died, with what differs from job to job taken out of the
-- text. cause is a token, see next_token, so that none comes twice; n is how many of
-- them are dead now, and without any the row goes. hash is that of text, which would
-- be stored twice if it were in the key. When they died, and an example, the index
-- errand_dead_cause tells.
CREATE TABLE errand_cause (
  cause  INTEGER PRIMARY KEY,
  lane   INTEGER NOT NULL,
  reason TEXT NOT NULL,
  hash   INTEGER NOT NULL,
  n      INTEGER NOT NULL,
  text   TEXT NOT NULL,
  UNIQUE (lane, reason, hash)
) STRICT;

-- The tags of jobs, in whatever table they are. Keyed by job, never moved.
CREATE TABLE errand_tag (
  tag TEXT NOT NULL,
  job INTEGER NOT NULL,
  PRIMARY KEY (tag, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX errand_tag_job ON errand_tag (job);

-- What few jobs have, in whatever table they are. Keyed by job, never moved, so
-- that a job without it pays for one byte.
--   group_key      the queue, a space, and the group of the job
--   since          when start_by and deadline were counted from, 0 if from a date
--   start_by       the first attempt has to begin before it; 0 once one has begun
--   start_within   the length behind start_by, for when the job is put off
--   deadline       no attempt begins at it or later
--   finish_within  the length behind deadline, for the same and for a redrive
--   epoch          0, or that of errand_epoch from whose base start_by and deadline
--                  are counted, which are lengths then
--   flags          bit 0: dead, rather than finished, once start_by has come;
--                  bit 1: finished, whatever is set for the lane
--   role           of a member of a group: 1 blocked, 2 scheduled, ready or running,
--                  3 dead and blocks those with higher keys, 0 the others pass it
-- start_by and deadline are 0 once the job has ended, and below zero while it runs.
CREATE TABLE errand_option (
  job           INTEGER PRIMARY KEY,
  group_key     TEXT,
  since         INTEGER NOT NULL DEFAULT 0,
  start_by      INTEGER NOT NULL DEFAULT 0,
  start_within  INTEGER NOT NULL DEFAULT 0,
  deadline      INTEGER NOT NULL DEFAULT 0,
  finish_within INTEGER NOT NULL DEFAULT 0,
  epoch         INTEGER NOT NULL DEFAULT 0,
  flags         INTEGER NOT NULL DEFAULT 0,
  role          INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX errand_option_blocked ON errand_option (group_key) WHERE role = 1;
CREATE INDEX errand_option_head ON errand_option (group_key, role) WHERE role >= 2;
CREATE INDEX errand_option_dead ON errand_option (group_key) WHERE role = 3;
CREATE INDEX errand_option_start ON errand_option (epoch, start_by) WHERE start_by > 0;
CREATE INDEX errand_option_deadline ON errand_option (epoch, deadline) WHERE deadline > 0;

CREATE INDEX errand_option_epoch ON errand_option (epoch) WHERE epoch > 0;

-- Times in which the clock was not believed, and in which jobs with a start_by or a
-- deadline were enqueued. base is the first time that was believed, 0 before that.
-- epoch is a token, see next_token, so that none comes twice.
CREATE TABLE errand_epoch (
  epoch INTEGER PRIMARY KEY,
  base  INTEGER NOT NULL
) STRICT;

-- Large args, with the headers. Keyed by job, never moved.
CREATE TABLE errand_payload (
  job     INTEGER PRIMARY KEY,
  headers BLOB,
  args    BLOB NOT NULL
) STRICT;

-- The error of a job's last attempt that could not reach the other side, which is in
-- no history, and the token of that attempt. The error may be 8 KiB, and each lease
-- would write it anew if it were in the job's row.
CREATE TABLE errand_error (
  job   INTEGER PRIMARY KEY,
  token INTEGER NOT NULL,
  error TEXT NOT NULL
) STRICT;

-- Failed attempts and edits, the last 20 of each job. retry_after is 1 if the attempt
-- asked for the delay that followed. args are what an edit has replaced, which is no
-- failure, and NULL for a failure.
CREATE TABLE errand_history (
  job      INTEGER NOT NULL,
  n        INTEGER NOT NULL,
  attempt  INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  phase    TEXT NOT NULL,
  error    TEXT NOT NULL,
  stack    TEXT NOT NULL,
  duration INTEGER NOT NULL,
  instance TEXT NOT NULL,
  args     BLOB,
  retry_after INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job, n)
) STRICT, WITHOUT ROWID;

-- Unique keys with the job that holds each. until is 0 while that job is live,
-- 9223372036854775807 for ever, and a time for that long, or while the job is live. slot is 0, and 1
-- for the job that waits behind a live holder, whose until is -1 then rather than 0.
CREATE TABLE errand_unique (
  key        TEXT NOT NULL,
  slot       INTEGER NOT NULL DEFAULT 0,
  job        INTEGER NOT NULL,
  salt       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  until      INTEGER NOT NULL,
  PRIMARY KEY (key, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX errand_unique_behind ON errand_unique (job) WHERE slot = 1;
CREATE INDEX errand_unique_until ON errand_unique (until) WHERE until > 0 AND until < 9223372036854775807;

-- Recurring jobs. revision is a token, see next_token; last_job is an ID. Ticks
-- up to through are decided. Only this row is written when a tick is fired.
CREATE TABLE errand_schedule (
  schedule     INTEGER PRIMARY KEY,
  name         TEXT NOT NULL UNIQUE,
  revision     INTEGER NOT NULL,
  paused       INTEGER NOT NULL,
  next_tick    INTEGER,
  through      INTEGER,
  last_tick    INTEGER,
  last_job     BLOB,
  spec         TEXT NOT NULL,
  zone         TEXT NOT NULL,
  missed       TEXT NOT NULL,
  skip_overlap INTEGER NOT NULL,
  jitter       INTEGER NOT NULL
) STRICT;

-- What schedules enqueue, which may be large. policy is the document itself, tags
-- are separated by spaces; the next three are as in errand_option.
CREATE TABLE errand_schedule_job (
  schedule     INTEGER PRIMARY KEY,
  queue        TEXT NOT NULL,
  kind         TEXT NOT NULL,
  priority     INTEGER NOT NULL,
  timeout      INTEGER NOT NULL,
  policy       TEXT,
  unique_key   TEXT,
  unique_scope INTEGER NOT NULL,
  headers      BLOB,
  args         BLOB NOT NULL,
  tags         TEXT,
  start_within  INTEGER NOT NULL DEFAULT 0,
  finish_within INTEGER NOT NULL DEFAULT 0,
  flags         INTEGER NOT NULL DEFAULT 0,
  group_name    TEXT
) STRICT;

-- What became of the ticks of schedules, the last 50 entries of each.
CREATE TABLE errand_tick (
  schedule INTEGER NOT NULL,
  n        INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  until    INTEGER NOT NULL,
  ticks    INTEGER NOT NULL,
  taken    TEXT NOT NULL,
  noted    INTEGER NOT NULL,
  job      BLOB,
  PRIMARY KEY (schedule, n)
) STRICT, WITHOUT ROWID;

-- Small documents under names, of whoever publishes. revision, here and in the next
-- table, is a token, see next_token. family is empty for none.
CREATE TABLE errand_entry (
  entry      INTEGER PRIMARY KEY,
  class      TEXT NOT NULL,
  name       TEXT NOT NULL,
  family     TEXT NOT NULL,
  revision   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  doc        BLOB NOT NULL,
  UNIQUE (class, name)
) STRICT;
CREATE INDEX errand_entry_family ON errand_entry (family, class, name) WHERE family <> '';

-- Entries whose changes concern each other, also if there are none any more.
CREATE TABLE errand_family (
  family   TEXT PRIMARY KEY,
  revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What jobs deliver: those with the tag 'message:' and the id. message is a token, so
-- that the order is that of publication. purge_at is NULL while there is such a job, in
-- whatever table, and else keep_until; without that the row goes with the last of them.
-- dedup_until is until when another message of the topic with the same dedup is a
-- duplicate.
CREATE TABLE errand_message (
  message      INTEGER PRIMARY KEY,
  id           TEXT NOT NULL UNIQUE,
  topic        TEXT NOT NULL,
  published_at INTEGER NOT NULL,
  keep_until   INTEGER NOT NULL,
  purge_at     INTEGER,
  dedup        TEXT,
  dedup_until  INTEGER NOT NULL DEFAULT 0,
  cursor       TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX errand_message_topic ON errand_message (topic, published_at);
CREATE INDEX errand_message_dedup ON errand_message (topic, dedup) WHERE dedup IS NOT NULL;
CREATE INDEX errand_message_purge ON errand_message (purge_at) WHERE purge_at IS NOT NULL;

-- What a message says, which may be large. Never moved.
CREATE TABLE errand_body (
  message    INTEGER PRIMARY KEY,
  attributes BLOB,
  body       BLOB NOT NULL
) STRICT;
