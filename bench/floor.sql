-- What a durable insert costs at least.
CREATE TABLE floor_job (
  id   INTEGER PRIMARY KEY,
  args BLOB
);
