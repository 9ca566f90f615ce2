package perminute_test

import (
	"strconv"
	"testing"

	"github.com/errandq/errand/internal/perminute"
)

func TestText(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01: "< 0.1", 0.25: "0.2", 4: "4", 9.94: "9.9", 9.96: "10", 1234.4: "1234"} {
		if got := perminute.Text(v, func(n int64) string { return strconv.FormatInt(n, 10) }); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}
