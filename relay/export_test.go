package relay

import (
	"net/http"
	"time"
)

// SetNow sets the clock of a [Handler] for crowds and deadlines.
func SetNow(h http.Handler, now func() time.Time) { h.(*handler).now = now }
