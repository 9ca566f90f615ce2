-- name: AddOrder :exec
INSERT INTO orders (email) VALUES (?);
