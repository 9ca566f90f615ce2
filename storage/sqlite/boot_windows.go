package sqlite

import (
	"strconv"
	"time"

	"golang.org/x/sys/windows"
)

// bootID names the boot of the system: an instance of another boot did not
// crash, its machine went down. Windows tells how long it has been up; the
// minute of the boot is name enough.
func bootID() string {
	return strconv.FormatInt(time.Now().Add(-windows.DurationSinceBoot()).Round(time.Minute).Unix(), 10)
}
