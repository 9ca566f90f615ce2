// Package migrations holds the schema of errand as numbered SQL files, one
// folder for each kind of database. A file is applied once, in one
// transaction, in the order of its number, and never changed after a release.
package migrations

import "embed"

// SQLite holds sqlite/NNNN_name.sql.
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Postgres holds postgres/NNNN_name.sql.
//
//go:embed postgres/*.sql
var Postgres embed.FS
