-- The tables of errand on PostgreSQL. Times are microseconds since 1970 in UTC, durations
-- microseconds. States: 1 scheduled, 2 ready, 3 running, 4 done, 5 cancelled, 6 dead,
-- 7 blocked; a partial index is used only where the query has the literal.
--
-- Names have COLLATE "C", so that they sort as in Go whatever the database's own
-- collation is. What may hold any byte is bytea.

-- Keys of jobs, tokens of leases, numbers of instances and of Stores. A sequence caches nothing: a
-- number is taken when it is needed, so that numbers rise from a call to the calls that
-- begin after it.
CREATE SEQUENCE errand_key MAXVALUE 281474976710655;
CREATE SEQUENCE errand_token;
CREATE SEQUENCE errand_instance_number AS integer;
CREATE SEQUENCE errand_store AS integer;

-- What is about the database as a whole, in one row. locks is the first half of the keys
-- of advisory locks: several schemas of one database have a different one each.
-- min_version is the oldest schema version whose programs may use the tables. settings
-- rises with each change of errand_setting.
CREATE TABLE errand_meta (
  locks       integer NOT NULL,
  min_version integer NOT NULL,
  settings    bigint NOT NULL
);
INSERT INTO errand_meta VALUES ((random() * 2147483646)::integer, 1, 1);

-- What is set for lanes. Who changes it locks errand_meta first.
CREATE TABLE errand_setting (
  queue text COLLATE "C" NOT NULL,
  kind  text COLLATE "C" NOT NULL,
  name  text COLLATE "C" NOT NULL,
  value bigint NOT NULL,
  PRIMARY KEY (queue, kind, name)
);

-- A lane is a number for a queue and a kind. Who adds lanes holds an advisory lock
-- until the commit: a lane is seen only after those with lower numbers.
CREATE TABLE errand_lane (
  lane  integer PRIMARY KEY,
  queue text COLLATE "C" NOT NULL,
  kind  text COLLATE "C" NOT NULL,
  UNIQUE (queue, kind)
);

-- How many jobs of a lane have gone from a state to another one: the sum of n over both tables.
-- number is 32 times the former state, and the latter: 0 of jobs that were not there, 16 more of
-- those that have ended and are gone, 31 in the lane of which they are not. So the jobs in a state
-- are those that have come to it, without those that have left it. bytes is by how many more
-- bytes of args and headers live jobs have. Transactions add rows to errand_delta and meet no row of
-- others; now and then these are folded into errand_number.
--
-- at is when attempts of these jobs have succeeded. In rows with the number -1, of which n is how
-- many attempts have failed, it is when the last one of them did, or the job died, which is job.
-- When that was last is kept in errand_number as -2 and -3, with the transaction that wrote it. The
-- number -4 is of errand_cause.
CREATE TABLE errand_number (
  lane   integer NOT NULL,
  number smallint NOT NULL,
  n      bigint NOT NULL,
  bytes  bigint,
  at     bigint,
  job    bigint,
  wrote  xid,
  PRIMARY KEY (lane, number)
);
CREATE TABLE errand_delta (
  lane   integer NOT NULL,
  number smallint NOT NULL,
  n      bigint NOT NULL,
  bytes  bigint,
  at     bigint,
  job    bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Stores that lease. Each holds an advisory lock with its number in a session of its own.
-- lease is the longest lease it has asked for, seen_at when it last looked after its
-- registration, 0 if there is no process any more, closed that it waits only for its
-- handlers: its leases do not lapse.
CREATE TABLE errand_instance (
  instance integer PRIMARY KEY,
  name     text NOT NULL,
  lease    bigint NOT NULL,
  seen_at  bigint NOT NULL,
  closed   boolean NOT NULL DEFAULT false
);

-- Marks of transactions that have written, by the number of the Store, and that of the call
-- times eight. Who has lost the answer to a commit inserts the row itself, with no keys: if
-- there is a row already, the transaction took place, else it cannot any more. A mark of an
-- Enqueue has the key of the last job. The seven numbers after it are of what is unusual in
-- the answer. A Store deletes its marks once the calls are answered, and those of others
-- after a day.
CREATE TABLE errand_call (
  call  bigint NOT NULL,
  store integer NOT NULL,
  day   date NOT NULL DEFAULT CURRENT_DATE,
  keys  bigint[],
  PRIMARY KEY (store, call)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Live jobs. weight is how many bytes args and headers have. history is true if
-- errand_history may have rows of the job. call is that by which the lease was granted. Of a job whose lease was never taken from
-- anybody, and whose start was never written, started_at and doubt are NULL, which takes
-- no room: started_at is when the start of the lease was written. doubt is 1 if a holder of
-- the job was gone before it could be known whether its handler ran, 2 and 3 if this lease
-- was taken over, and the attempt was cut off or has crashed.
--
-- The five columns at the end are NULL in plain jobs, which no index on them has. group_key
-- is the name of the queue, a space, and that of the group. Roles of its members: 0 none, 1
-- waits, 2 has a place, 3 is dead and blocks others. was_due says of a blocked job that it
-- was due when it was blocked. redriven is true of one that was dead once.
--
-- A lease changes the state, so its new version of the row needs new entries in the
-- indexes; an extension changes no indexed column, and finds room on the page.
CREATE TABLE errand_job (
  id         bigint PRIMARY KEY,
  due_at     bigint NOT NULL,
  created_at bigint NOT NULL,
  until      bigint NOT NULL DEFAULT 0,
  token      bigint NOT NULL DEFAULT 0,
  timeout    bigint NOT NULL DEFAULT 0,
  lane       integer NOT NULL,
  instance   integer NOT NULL DEFAULT 0,
  call       integer NOT NULL DEFAULT 0,
  salt       integer NOT NULL,
  weight     integer NOT NULL,
  attempt    integer NOT NULL DEFAULT 0,
  retry      integer NOT NULL DEFAULT 0,
  crashes    integer NOT NULL DEFAULT 0,
  snoozes    integer NOT NULL DEFAULT 0,
  state      smallint NOT NULL,
  priority   smallint NOT NULL,
  cancelling boolean NOT NULL DEFAULT false,
  history    boolean NOT NULL DEFAULT false,
  started_at bigint,
  doubt      smallint,
  policy     bytea,
  headers    bytea,
  args       bytea NOT NULL,
  unique_key bytea,
  group_key  text COLLATE "C",
  role       smallint,
  was_due    boolean,
  redriven   boolean
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX errand_job_ready ON errand_job (lane, priority DESC, due_at, id) WHERE state = 2;
CREATE INDEX errand_job_scheduled ON errand_job (due_at, id) WHERE state = 1;
CREATE INDEX errand_job_running ON errand_job (instance) WHERE state = 3;
CREATE INDEX errand_job_waits ON errand_job (group_key, id) WHERE role = 1;
CREATE INDEX errand_job_placed ON errand_job (group_key, id) WHERE role = 2;
CREATE INDEX errand_job_unplaced ON errand_job (due_at, id) WHERE state = 1 AND role = 0;
CREATE INDEX errand_job_rest ON errand_job (group_key, id) WHERE role = 0;

-- Unique keys with the job that holds each. until is 0 while that job is live,
-- 9223372036854775807 for ever, and a time for that long, or while the job is live. slot is 0, and
-- 1 for the job that waits behind a live holder. A row without a job is seen by nobody but the
-- transaction that has inserted it, as a lock.
CREATE TABLE errand_unique (
  key        bytea NOT NULL,
  slot       smallint NOT NULL,
  job        bigint NOT NULL,
  created_at bigint NOT NULL,
  until      bigint NOT NULL,
  salt       integer NOT NULL,
  PRIMARY KEY (key, slot)
);
CREATE INDEX errand_unique_behind ON errand_unique (job) WHERE slot = 1;
CREATE INDEX errand_unique_until ON errand_unique (until) WHERE slot = 0 AND until > 0 AND until < 9223372036854775807;

-- Groups, as locks: whoever changes a role locks the row of the group first, and deletes it
-- if no member has a role any more.
CREATE TABLE errand_group (
  group_key text COLLATE "C" PRIMARY KEY
);

-- Finished jobs, until purge_at.
CREATE TABLE errand_finished (
  id         bigint PRIMARY KEY,
  due_at     bigint NOT NULL,
  created_at bigint NOT NULL,
  ended_at   bigint NOT NULL,
  purge_at   bigint NOT NULL,
  token      bigint NOT NULL,
  timeout    bigint NOT NULL,
  lane       integer NOT NULL,
  salt       integer NOT NULL,
  attempt    integer NOT NULL,
  retry      integer NOT NULL,
  crashes    integer NOT NULL,
  snoozes    integer NOT NULL,
  state      smallint NOT NULL,
  priority   smallint NOT NULL,
  policy     bytea,
  headers    bytea,
  args       bytea NOT NULL,
  error      bytea NOT NULL,
  unique_key bytea,
  group_key  text COLLATE "C"
);
CREATE INDEX errand_finished_purge ON errand_finished (purge_at);
CREATE INDEX errand_finished_group ON errand_finished (group_key, id) WHERE group_key IS NOT NULL;

-- Dead letters. in_effect is the policy that was in effect when the job died, policy the
-- job's own.
CREATE TABLE errand_dead (
  id         bigint PRIMARY KEY,
  due_at     bigint NOT NULL,
  created_at bigint NOT NULL,
  ended_at   bigint NOT NULL,
  token      bigint NOT NULL,
  timeout    bigint NOT NULL,
  lane       integer NOT NULL,
  salt       integer NOT NULL,
  attempt    integer NOT NULL,
  retry      integer NOT NULL,
  crashes    integer NOT NULL,
  snoozes    integer NOT NULL,
  priority   smallint NOT NULL,
  reason     text COLLATE "C" NOT NULL,
  policy     bytea,
  in_effect  bytea,
  headers    bytea,
  args       bytea NOT NULL,
  cause      bigint NOT NULL,
  error      bytea NOT NULL,
  unique_key bytea,
  group_key  text COLLATE "C",
  role       smallint
);
CREATE INDEX errand_dead_ended ON errand_dead (ended_at, id);
CREATE INDEX errand_dead_group ON errand_dead (group_key, id) WHERE group_key IS NOT NULL;
CREATE INDEX errand_dead_blocks ON errand_dead (group_key, id) WHERE role = 3;
-- Of indexes that seem to cost the same, as in a table without statistics, the last one is used.
CREATE INDEX errand_dead_cause ON errand_dead (cause, ended_at, id);

-- What dead letters of a lane have in common, as long as there is one. Whoever changes the cause of
-- one, or which are there, locks the rows of the lanes in errand_lane first. n is how many there are,
-- with those of errand_delta that have the number -4, of which job is the cause; first is when the
-- first one died.
CREATE TABLE errand_cause (
  cause  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  n      bigint NOT NULL DEFAULT 0,
  first  bigint NOT NULL,
  lane   integer NOT NULL,
  reason text COLLATE "C" NOT NULL,
  text   bytea NOT NULL
);
CREATE UNIQUE INDEX errand_cause_name ON errand_cause (lane, reason, sha256(text));

-- Failed attempts, and edits of args, the last 20 of each job. Keyed by job, never moved. args
-- are what an edit has replaced, NULL of an attempt.
CREATE TABLE errand_history (
  job         bigint NOT NULL,
  n           integer NOT NULL,
  attempt     integer NOT NULL,
  at          bigint NOT NULL,
  duration    bigint NOT NULL,
  retry_after boolean NOT NULL,
  phase       bytea NOT NULL,
  error       bytea NOT NULL,
  stack       bytea NOT NULL,
  instance    bytea NOT NULL,
  args        bytea,
  PRIMARY KEY (job, n)
);
