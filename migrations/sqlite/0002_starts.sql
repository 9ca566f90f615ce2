-- The instances that have had a firing of a schedule as they started. Those that have ended stay
-- until the next such firing of the schedule.
CREATE TABLE errand_start (
  schedule INTEGER NOT NULL,
  instance INTEGER NOT NULL,
  PRIMARY KEY (schedule, instance)
) STRICT, WITHOUT ROWID;
