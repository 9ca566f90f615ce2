-- The numbers need not count up to 64 jobs that were enqueued last: next_job in errand_number is the
-- key from which on jobs are counted from their rows. They wait, have no args in errand_payload, and
-- none of their keys is left out. The next key is behind theirs, and at least next_job.
DROP VIEW errand_meta;
CREATE VIEW errand_meta AS SELECT
  (SELECT n FROM errand_number WHERE id = 0) AS min_writer,
  (SELECT MAX(n, COALESCE((SELECT MAX(id) FROM errand_job WHERE id < n + 64), 0) + 1) FROM errand_number WHERE id = 1) AS next_job,
  (SELECT n FROM errand_number WHERE id = 2) AS next_token,
  (SELECT n FROM errand_number WHERE id = 3) AS next_instance,
  (SELECT n FROM errand_number WHERE id = 4) AS generation,
  (SELECT MAX(n, COALESCE((SELECT MAX(created_at) FROM errand_job
    WHERE id BETWEEN (SELECT n FROM errand_number WHERE id = 1) AND (SELECT n + 63 FROM errand_number WHERE id = 1)), 0))
   FROM errand_number WHERE id = 5) AS clock,
  (SELECT n FROM errand_number WHERE id = 6) AS shifting,
  (SELECT n FROM errand_number WHERE id = 7) AS asked;
DROP VIEW errand_count;
CREATE VIEW errand_count AS SELECT lane, state, SUM(n) AS n FROM (
  SELECT id / 32 AS lane, id % 32 AS state, n FROM errand_number WHERE id >= 32 AND id % 32 < 16
  UNION ALL SELECT lane, state, 1 FROM errand_job NOT INDEXED
  WHERE id BETWEEN (SELECT n FROM errand_number WHERE id = 1) AND (SELECT n + 63 FROM errand_number WHERE id = 1)
  UNION ALL SELECT lane, 3, COUNT(*) FROM errand_job WHERE state = 3 GROUP BY lane)
GROUP BY lane, state;

-- A program that does not know of these jobs would give their keys again.
UPDATE errand_number SET n = 10 WHERE id = 0;
