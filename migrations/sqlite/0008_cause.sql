-- When the first job died that a cause has counted, whether it is dead still or not. NULL in a row
-- of a program that does not know of it: then it is taken from the dead letters that there are.
ALTER TABLE errand_cause ADD COLUMN first INTEGER;
UPDATE errand_cause SET first = (SELECT ended_at FROM errand_dead d WHERE d.cause = errand_cause.cause AND d.cause <> 0 ORDER BY ended_at LIMIT 1);
