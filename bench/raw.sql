-- The hot table of errand with its partial indexes, without what makes the ID,
-- the unique key, the counters and the history. attempt stays, as the workload
-- that fails has to know how often it did; large args are beside, as in errand.
CREATE TABLE raw_job (
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
  created_at INTEGER NOT NULL,
  timeout    INTEGER NOT NULL,
  policy     INTEGER NOT NULL,
  headers    BLOB,
  args       BLOB
) STRICT;
CREATE INDEX raw_job_scheduled ON raw_job (due_at) WHERE state = 1;
CREATE INDEX raw_job_ready ON raw_job (lane, priority DESC, due_at) WHERE state = 2;
CREATE INDEX raw_job_running ON raw_job (instance) WHERE state = 3;

CREATE TABLE raw_payload (
  job  INTEGER PRIMARY KEY,
  args BLOB NOT NULL
) STRICT;

-- Only for the workloads that are about failures.
CREATE TABLE raw_history (
  job      INTEGER NOT NULL,
  n        INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  error    TEXT NOT NULL,
  PRIMARY KEY (job, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE raw_dead (
  id         INTEGER PRIMARY KEY,
  lane       INTEGER NOT NULL,
  priority   INTEGER NOT NULL,
  due_at     INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  died_at    INTEGER NOT NULL,
  error      TEXT NOT NULL,
  args       BLOB
) STRICT;

-- The row of the application beside the job.
CREATE TABLE app_order (
  id   INTEGER PRIMARY KEY,
  note TEXT NOT NULL
) STRICT;
