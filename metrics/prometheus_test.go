package metrics_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/metrics"
)

// tool skips a test without a program of Debian's package prometheus.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: apt-get install prometheus", name)
	}
	return path
}

// The rules are well formed, and each fires and stays silent as alerts_test.yml says.
func TestAlerts(t *testing.T) {
	promtool := tool(t, "promtool")
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	if len(names) < 10 {
		t.Fatalf("there are the alerts %v", names)
	}
	for _, m := range names {
		for _, what := range []string{"fires", "is silent"} {
			if n := strings.Count(string(tests), "- name: "+m[1]+" "+what+"\n"); n != 1 {
				t.Errorf("%d tests of %s: that it %s, want 1", n, m[1], what)
			}
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// start runs a program until the test ends, and returns the lines that it logs.
func start(t *testing.T, name string, args ...string) *bufio.Scanner {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	errs, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		errs.Close()
	})
	return bufio.NewScanner(errs)
}

// listening returns the address that a program logs behind before, and reads on so that the program
// can go on to log.
func listening(t *testing.T, lines *bufio.Scanner, before string) string {
	t.Helper()
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), before); ok {
			go func() {
				for lines.Scan() {
				}
			}()
			return address
		}
	}
	t.Fatalf("a program has ended without a line with %q", before)
	return ""
}

// get returns what a page serves.
func get(t *testing.T, page string) ([]byte, error) {
	r, err := http.NewRequestWithContext(t.Context(), "GET", page, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return body, err
}

// prometheus is a server that has scraped.
type prometheus struct {
	address string
}

// query returns the values that an expression has now.
func (p *prometheus) query(t *testing.T, expr string) (all []string, err error) {
	body, err := get(t, p.address+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	for _, r := range answer.Data.Result {
		all = append(all, fmt.Sprint(r.Value[1]))
	}
	return all, nil
}

// A Prometheus that has scraped a program evaluates each expression of the alerts, and has
// numbers for each one of the dashboard. It takes 10 to 20 s, as rates need several scrapes.
func TestPrometheus(t *testing.T) {
	server, promtool := tool(t, "prometheus"), tool(t, "promtool")
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../examples/metrics").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := start(t, program, "-db", filepath.Join(dir, "jobs.db"), "-addr", "127.0.0.1:0")
	address := listening(t, lines, "listening addr=")

	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - {job_name: app, static_configs: [{targets: [%q]}]}\n", rules, address)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	said := start(t, server, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0")
	p := &prometheus{"http://" + listening(t, said, `msg="Listening on" address=`)}

	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	for _, panel := range dashboard(t) {
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "10s").Replace(target.Expr)
			poll(ctx, t, panel.Title+": "+expr, func() error {
				got, err := p.query(t, expr)
				if text := strings.Join(got, " "); err == nil && strings.Trim(text, "Na ") == "" {
					err = fmt.Errorf("no number in %q", text)
				}
				return err
			})
		}
	}
	checkRules(ctx, t, p)

	text, err := get(t, "http://"+address+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(string(text))
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// poll calls f until it returns no error, or ctx ends.
func poll(ctx context.Context, t *testing.T, what string, f func() error) {
	t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-again.C:
		}
	}
}

// checkRules waits until the alerts are as the program has it: those about its deaths, its dead
// letters and its queue without a worker are true, and all others are not.
func checkRules(ctx context.Context, t *testing.T, p *prometheus) {
	t.Helper()
	poll(ctx, t, "alerts", func() error {
		body, err := get(t, p.address+"/api/v1/rules")
		if err != nil {
			return err
		}
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError, State string }
				}
			}
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		want := map[string]string{"ErrandDeaths": "firing", "ErrandDeadLetters": "pending", "ErrandNoWorker": "pending"}
		n := 0
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				n++
				state := want[r.Name]
				if state == "" {
					state = "inactive"
				}
				if r.Health != "ok" || r.LastError != "" || r.State != state {
					return fmt.Errorf("%+v, want it to be ok and %s", r, state)
				}
			}
		}
		if n < 10 {
			return fmt.Errorf("there are %d rules", n)
		}
		return nil
	})
}

type panel struct {
	Title   string
	Type    string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr, RefID, LegendFormat string }
}

// dashboard reads dashboard.json.
func dashboard(t *testing.T) []panel {
	t.Helper()
	b, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title         string
		SchemaVersion int
		Panels        []panel
	}
	if err := json.Unmarshal(b, &d); err != nil || d.Title == "" || d.SchemaVersion == 0 || len(d.Panels) < 10 {
		t.Fatalf("the dashboard is %+v, %v", d, err)
	}
	return d.Panels
}

// The dashboard and the alerts name metrics that there are, and all of them are on the dashboard.
func TestDashboard(t *testing.T) {
	known := map[string]bool{}
	for _, f := range metrics.Families() {
		known[f.Name] = false
	}
	name := regexp.MustCompile(`errand_\w+`)
	for _, p := range dashboard(t) {
		if p.Title == "" || p.Type == "" || p.GridPos.W == 0 || len(p.Targets) == 0 {
			t.Errorf("a panel lacks something: %+v", p)
		}
		for _, target := range p.Targets {
			for _, used := range name.FindAllString(target.Expr, -1) {
				known[strings.TrimSuffix(used, "_bucket")] = true
			}
		}
	}
	for metric, shown := range known {
		if !shown {
			t.Errorf("%s is not on the dashboard", metric)
		}
	}
	if len(known) != len(metrics.Families()) {
		t.Errorf("a panel names a metric that there is not: %v", known)
	}
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(rules)) {
		for _, used := range name.FindAllString(line, -1) {
			if _, ok := known[used]; !ok && strings.Contains(line, "expr:") {
				t.Errorf("an alert names %s, and there is no such metric", used)
			}
		}
	}
}
