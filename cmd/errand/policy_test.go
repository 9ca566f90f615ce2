package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/errandq/errand/internal/plot"
)

// errand runs the program and returns its status and output.
func errand(t *testing.T, in string, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	status = run(t.Context(), args, strings.NewReader(in), &o, &e)
	return status, o.String(), e.String()
}

// succeed runs the program, which must find no fault, and returns its output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := errand(t, "", args...)
	if status != 0 || errs != "" {
		t.Fatalf("errand %q: status %d: %s", args, status, errs)
	}
	return out
}

func TestPolicyCheck(t *testing.T) {
	got := succeed(t, "policy", "check", "testdata/subscription.json")
	if want := "testdata/subscription.json: valid by profile sns: 50 retries in 18m22s to 36m45.271s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for in, want := range map[string]string{
		`{"http":{"defaultHealthyRetryPolicy":{"numRetries":4}}}`: "-: valid by profile sns: 4 retries in 40s to 1m20s\n",
		`{"numRetries":5}`: "-: valid by profile sns: 5 retries in 50s to 1m40s\n",
		`{}`:               "-: valid by profile sns: 3 retries in 30s to 1m0s\n",
	} {
		if status, out, errs := errand(t, in, "policy", "check", "-"); status != 0 || out != want || errs != "" {
			t.Errorf("%s: status %d, %q %q, want %q", in, status, out, errs, want)
		}
	}
}

func TestPolicyCheck_Warnings(t *testing.T) {
	status, out, errs := errand(t, `{"minDelayTarget":1,"numRetries":2,"maxDelayTarget":1}`, "policy", "check", "-")
	if status != 0 || out == "" || !strings.HasPrefix(errs, "warning: it ends after 2s: an outage of 30s") {
		t.Errorf("status %d, %q %q", status, out, errs)
	}
}

func TestPolicyCheck_FiveFaults(t *testing.T) {
	status, out, errs := errand(t, "", "policy", "check", "testdata/faults.json")
	want := strings.TrimLeft(`
policy: healthyRetryPolicy.minDelayTarget 0: must be between 1 and 3600
policy: healthyRetryPolicy.maxDelayTarget 4000: must be between 1 and 3600
policy: healthyRetryPolicy.numRetries 101: must be between 0 and 100
policy: healthyRetryPolicy.backoffFunction "quadratic": must be one of linear, arithmetic, geometric, exponential
policy: throttlePolicy.maxReceivesPerSecond 0: must be a whole number between 1 and 2147483647
`, "\n")
	if status != 1 || out != "" || errs != want {
		t.Errorf("status %d, out %q, faults\n%s\nwant\n%s", status, out, errs, want)
	}
}

func TestPolicyCheck_Profile(t *testing.T) {
	const in = `{"minDelayTarget":"500ms","numRetries":1000,"backoffFunction":"doubling"}`
	if status, _, errs := errand(t, in, "policy", "check", "-"); status != 1 || strings.Count(errs, "\n") != 3 {
		t.Errorf("profile sns: status %d, %s", status, errs)
	}
	if status, _, errs := errand(t, in, "policy", "check", "--profile", "queue", "-"); status != 0 {
		t.Errorf("profile queue: status %d, %s", status, errs)
	}
}

func TestPolicy_BadUsage(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, bytes.Repeat([]byte(" "), maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		want string
		args []string
	}{
		{"no such file", []string{"check", "testdata/none.json"}},
		{"is neither a file nor a preset", []string{"show", "unheard"}},
		{`unknown command "unheard" for "errand policy": see errand policy --help`, []string{"unheard"}},
		{`unknown command "chekc" for "errand policy": did you mean errand policy check?`, []string{"chekc"}},
		{`unknown command "redirve" for "errand policy": did you mean errand dead redrive or errand subscriptions redrive?`, []string{"redirve"}},
		{"accepts 1 arg(s)", []string{"show"}},
		{"unknown flag", []string{"show", "--unheard", "default"}},
		{`"aws": must be one of queue, sns, sns-raw`, []string{"check", "--profile", "aws", "testdata/linear.json"}},
		{"--limit -1: must be at least 0", []string{"show", "default", "--limit", "-1"}},
		{"--limit -1: must be at least 0", []string{"plot", "default", "--limit", "-1"}},
		{"larger than 1048576 bytes", []string{"check", large}},
		{"directory", []string{"check", "testdata"}},
		{"directory", []string{"plot", "default", "-o", "testdata"}},
	} {
		status, out, errs := errand(t, "", append([]string{"policy"}, test.args...)...)
		if status != 2 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: status %d, %q %q, want %q", test.args, status, out, errs, test.want)
		}
	}
	if status, _, errs := errand(t, `{"numRetries":0}`, "policy", "plot", "-"); status != 2 || !strings.Contains(errs, "nothing to draw") {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestPolicyShow_JSONBegins(t *testing.T) {
	got := succeed(t, "policy", "show", "testdata/subscription.json", "--json")
	want := `{"retries":50,"shortest_total_s":1102.64,"total_s":2205.27,"phases":{"immediate":3,"pre_backoff":2,"backoff":10,"post_backoff":35},` +
		`"schedule":[{"retry":0,"phase":"immediate","delay_s":0,"cumulative_s":0},`
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %.300s", got)
	}
	want = `{"retry":49,"phase":"post-backoff","delay_s":60,"cumulative_s":2205.271}]}` + "\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("got ... %s", got[len(got)-100:])
	}
}

func TestPolicyShow_Presets(t *testing.T) {
	list := succeed(t, "policy", "presets")
	for _, test := range []struct {
		name    string
		retries int
		total   float64 // to the second
	}{
		{"sns-managed", 100_015, 2_000_042},
		{"sns-customer", 50, 23_853},
		{"sns-http", 3, 60},
		{"sdk-standard", 2, 3},
		{"exponential-100ms", 10, 102},
		{"qldb", 4, 0},
		{"default", 27, 47_297},
		{"forever", 1_000_000, 3_599_950_097},
	} {
		var got struct {
			Retries  int
			Total    float64 `json:"total_s"`
			Phases   map[string]int
			Schedule []struct {
				Retry      int
				Phase      string
				Delay      *float64 `json:"delay_s"`
				Cumulative *float64 `json:"cumulative_s"`
			}
		}
		out := succeed(t, "policy", "show", test.name, "--json", "--limit", "2")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		sum := 0
		for _, n := range got.Phases {
			sum += n
		}
		if got.Retries != test.retries || sum != test.retries || math.Round(got.Total) != test.total || len(got.Schedule) != 2 {
			t.Errorf("%s: %s", test.name, out)
		}
		if last := got.Schedule[1]; last.Retry != 1 || last.Phase == "" || last.Delay == nil || last.Cumulative == nil {
			t.Errorf("%s: %s", test.name, out)
		}
		if !regexp.MustCompile(`(?m)^` + test.name + ` +` + strconv.Itoa(test.retries) + ` `).MatchString(list) {
			t.Errorf("%s is not in the list:\n%s", test.name, list)
		}
	}
}

// What the last line says in JSON and in words of each kind of jitter, and of policies whose
// sums are beyond what a Duration holds.
func TestPolicyShow_ShortestTotal(t *testing.T) {
	for doc, want := range map[string]string{
		`{"numRetries":27,"minDelayTarget":3600,"maxDelayTarget":3600}`:          "27 retries in 13h30m0s to 27h0m0s",
		`{"numRetries":3,"minDelayTarget":4,"maxDelayTarget":4,"jitter":"full"}`: "3 retries in 0s to 12s",
		`{"numRetries":3,"minDelayTarget":4,"maxDelayTarget":4,"jitter":"none"}`: "3 retries in 12s",
		`{"numRetries":0}`: "0 retries in 0s",
		`{"numRetries":1000000,"minDelayTarget":10000,"maxDelayTarget":10000}`: "1000000 retries without an end, in 1388888h53m20s to more than 292 years",
		`{"numRetries":1000000,"minDelayTarget":20000,"maxDelayTarget":20000}`: "1000000 retries without an end, in more than 292 years",
	} {
		status, got, errs := errand(t, doc, "policy", "show", "--limit", "0", "-")
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if last := lines[len(lines)-1]; status != 0 || last != want {
			t.Errorf("%s: status %d %s, got %q, want %q", doc, status, errs, last, want)
		}
	}
	list := succeed(t, "policy", "presets")
	for _, want := range []string{`(?m)^NAME +RETRIES +SHORTEST +TOTAL +FOR$`, `(?m)^default +27 +6h34m8.5s +13h8m17s +jobs of errand$`} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("no line %s in\n%s", want, list)
		}
	}
}

func TestPolicyShow_JSONOfAllRetries(t *testing.T) {
	out := succeed(t, "policy", "show", "sns-managed", "--json")
	if n := strings.Count(out, `"retry":`); n != 100_015 || !json.Valid([]byte(out)) {
		t.Errorf("%d retries", n)
	}
}

func TestPolicyShow_Table(t *testing.T) {
	got := succeed(t, "policy", "show", "qldb")
	want := strings.TrimLeft(`
RETRY  PHASE    DELAY  WITH JITTER  CUMULATIVE
0      backoff  20ms   10ms..20ms   20ms
1      backoff  40ms   20ms..40ms   60ms
2      backoff  80ms   40ms..80ms   140ms
3      backoff  160ms  80ms..160ms  300ms
4 retries in 150ms to 300ms
`, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got = succeed(t, "policy", "show", "sns-managed")
	if !strings.HasSuffix(got, "\n... and 99915 more\n100015 retries in 277h47m1s to 555h34m2.037s\n") {
		t.Errorf("got ... %s", got[len(got)-100:])
	}
}

func TestPolicyPlot_Text(t *testing.T) {
	got := succeed(t, "policy", "plot", "testdata/subscription.json")
	want, err := os.ReadFile("testdata/subscription.txt")
	if err != nil {
		t.Fatal(err)
	}
	if trimLines(got) != trimLines(string(want)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got = succeed(t, "policy", "plot", "sdk-standard", "--compare", "testdata/linear.json", "--compare", "sns-http")
	for _, want := range []string{"3 policies: 10 retries", "A sdk-standard\n", "B linear\n", "C sns-http\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "phase") {
		t.Error("phases are shown although the policies differ in them")
	}
	for _, preset := range presets {
		for line := range strings.Lines(succeed(t, "policy", "plot", preset.name)) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > 80 {
				t.Errorf("%s: a line of %d columns: %s", preset.name, n, line)
			}
		}
	}
}

// One point is a chart too, and has one number on its axis.
func TestPolicyPlot_TextOfOneRetry(t *testing.T) {
	got := succeed(t, "policy", "plot", "default", "--limit", "1")
	_, axis, _ := strings.Cut(got, "└")
	if lines := strings.Split(axis, "\n"); len(lines) < 2 || strings.TrimSpace(lines[1]) != "0" {
		t.Errorf("got\n%s", got)
	}
}

// trimLines takes away the space at the ends of lines, which editors do too.
func trimLines(s string) string {
	return regexp.MustCompile(`(?m) +$`).ReplaceAllString(s, "")
}

// svg draws into a file and returns its text, its lines by colour, and all the
// texts in it.
func svg(t *testing.T, args ...string) (lines map[string]string, texts, whole string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chart.svg")
	if out := succeed(t, append([]string{"policy", "plot", "-o", file}, args...)...); out != "" {
		t.Errorf("printed %q", out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines = map[string]string{}
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return lines, texts, string(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			texts += string(token)
		case xml.StartElement:
			attr := map[string]string{}
			for _, a := range token.Attr {
				attr[a.Name.Local] = a.Value
			}
			if token.Name.Local == "polyline" {
				lines[attr["stroke"]] = attr["points"]
			}
		}
	}
}

func TestPolicyPlot_SVG(t *testing.T) {
	lines, texts, whole := svg(t, "testdata/subscription.json")
	for _, want := range []string{
		"subscription: 50 retries in 18m22s to 36m45.271s", "retry", "nominal delay before the retry (s)", "with equal jitter",
		"immediate phase, 0 to 2", "pre-backoff phase, 3 to 4", "backoff phase, 5 to 14", "post-backoff phase, 15 to 49",
	} {
		if !strings.Contains(texts, want) {
			t.Errorf("no text %q", want)
		}
	}
	if len(lines) != 1 || strings.Count(lines["#0072b2"], ",") != 50 {
		t.Errorf("lines %v, want one with 50 points", lines)
	}
	for phase, color := range plot.PhaseColors {
		fill := `fill="` + color
		if strings.Count(whole, fill) != 2 { // the area and its sample in the legend
			t.Errorf("phase %v is not shaded with %s", phase, fill)
		}
	}
}

func TestPolicyPlot_LongSVG(t *testing.T) {
	draw := func(retries int) (line []float64, whole string) {
		file := filepath.Join(t.TempDir(), "linear.json")
		doc := fmt.Sprintf(`{"maxDelayTarget":3600,"numRetries":%d}`, retries)
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		lines, _, whole := svg(t, file)
		return heights(t, lines["#0072b2"]), whole
	}
	all, _ := draw(plot.MaxPoints)
	line, whole := draw(100_000)
	if len(all) != plot.MaxPoints || len(line) != plot.MaxPoints || len(whole) > 200_000 {
		t.Fatalf("%d and %d points, %d bytes", len(all), len(line), len(whole))
	}
	for i := range line {
		if math.Abs(line[i]-all[i]) > 0.11 { // coordinates are rounded
			t.Errorf("point %d is at %v instead of %v", i, line[i], all[i])
		}
	}
}

func TestPolicyPlot_FunctionsInOrder(t *testing.T) {
	files := "testdata/arithmetic.json,testdata/geometric.json,testdata/exponential.json"
	compared, texts, _ := svg(t, "testdata/linear.json", "--compare", files)
	var last []float64
	for i, name := range []string{"linear", "arithmetic", "geometric", "exponential"} {
		if !strings.Contains(texts, name) {
			t.Errorf("no text %q", name)
		}
		heights := heights(t, compared[plot.CurveColors[i]])
		if len(heights) != 10 {
			t.Fatalf("%s has %d points", name, len(heights))
		}
		for k := 1; k < 9 && i > 0; k++ {
			if last[k] <= heights[k] {
				t.Errorf("%s is not below the one before at retry %d", name, k)
			}
		}
		last = heights
	}
	functions, _, _ := svg(t, "testdata/geometric.json", "--functions")
	if len(functions) != 4 {
		t.Fatalf("%d lines", len(functions))
	}
	for colour, path := range compared {
		if functions[colour] != path {
			t.Errorf("--functions draws the line of colour %s differently", colour)
		}
	}
}

// heights returns how high the points of a line are, upwards.
func heights(t *testing.T, points string) []float64 {
	t.Helper()
	var all []float64
	for point := range strings.FieldsSeq(points) {
		_, y, _ := strings.Cut(point, ",")
		f, err := strconv.ParseFloat(y, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, -f)
	}
	return all
}
