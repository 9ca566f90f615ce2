-- What was done by hand, the last 100. deed names one that may take several transactions; jobs is
-- how many were changed in them. at is as who did it says.
CREATE TABLE errand_audit (
  id   INTEGER PRIMARY KEY,
  deed BLOB NOT NULL UNIQUE,
  at   INTEGER NOT NULL,
  who  TEXT NOT NULL,
  verb TEXT NOT NULL,
  what TEXT NOT NULL,
  note TEXT NOT NULL,
  jobs INTEGER NOT NULL
) STRICT;
