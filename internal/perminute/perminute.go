// Package perminute writes rates for people.
package perminute

import (
	"strconv"
	"strings"
)

// Text returns how many a minute there are, with a tenth if they are few: what is little does not
// look like nothing. Numbers from 10 on are whole, as count writes them.
func Text(v float64, count func(int64) string) string {
	switch {
	case v > 0 && v < 0.05:
		return "< 0.1"
	case v < 9.95:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	return count(int64(v + 0.5))
}
