// Package orm has tests in which one transaction of a library writes a row and a job. The code of
// sqlc in the folder of this name is generated.
package orm

//go:generate go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.30.0 generate
