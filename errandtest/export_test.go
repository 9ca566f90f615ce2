package errandtest

import "github.com/errandq/errand"

// Path is that of the file of a queue of New.
func Path(q *errand.Queue) string { return rigOf(q).path }
