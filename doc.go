// Package errand is an embedded, durable job queue.
package errand
