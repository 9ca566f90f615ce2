// Command stress runs the tests of every package of this repository under load: with as many
// busy loops as processors beside them, three times each for GOMAXPROCS 1, 2 and 4, and once
// with the race detector. A test whose verdict hangs on load, or on the order of goroutines,
// is to fail here. What has failed is not run again; the command goes on, and its status is 1.
//
//	go run ./internal/house/stress [-seed N] [-from N] [-keep FOLDER] [-packages REGEXP] [-race FLAGS]
//
// The order of the runs, and that of the tests in each, is that of the seed. So with the seed of
// an earlier call, which the first line of its output says, -from goes on where it was ended.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// burnVariable, if set, has this program be a busy loop until its input ends.
const burnVariable = "ERRAND_STRESS_BURN"

func main() {
	if os.Getenv(burnVariable) != "" {
		burn()
		return
	}
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "the order of runs and tests")
	from := flag.Int("from", 1, "the number of the first run")
	keep := flag.String("keep", "", "the folder for what failed runs have printed; one of its own if empty")
	only := flag.String("packages", "", "a regular expression: only packages that match it")
	race := flag.String("race", "-race", "how a binary with the race detector is built: flags of go test")
	list := flag.Bool("list", false, "print the runs and do nothing")
	flag.Parse()
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	failed, err := stress(ctx, &stresser{seed: *seed, folder: *keep, race: strings.Fields(*race)}, *from, *only, *list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// burn keeps a processor busy until the input ends, as it does when the parent is gone.
func burn() {
	runtime.GOMAXPROCS(2) // one for the loop, one for the end of the input
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for n := uint64(1); ; n = n*6364136223846793005 + 1442695040888963407 {
		if n == 0 {
			fmt.Print() // so that the loop has an effect
		}
	}
}

// pkg is a package with tests.
type pkg struct {
	module, dir, path string // the folders of its module and of itself, and its import path
}

// run is one process of the tests of a package.
type run struct {
	pkg
	procs int // GOMAXPROCS; 0 is that of the machine
	race  bool
	count int
}

func (r run) String() string {
	if r.race {
		return fmt.Sprintf("%s -race, %d times", r.path, r.count)
	}
	return fmt.Sprintf("%s GOMAXPROCS=%d, %d times", r.path, r.procs, r.count)
}

// order returns the runs of the packages in the order of a seed. The runs of one package with
// one binary stay together, so that the binary is built once.
func order(packages []pkg, seed uint64) []run {
	type group []run
	var groups []group
	for _, p := range packages {
		var plain group
		for _, procs := range []int{1, 2, 4} {
			plain = append(plain, run{pkg: p, procs: procs, count: 3})
		}
		groups = append(groups, plain, group{{pkg: p, race: true, count: 1}})
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	var runs []run
	for _, g := range groups {
		rng.Shuffle(len(g), func(i, j int) { g[i], g[j] = g[j], g[i] })
		runs = append(runs, g...)
	}
	return runs
}

// packages lists the packages with tests, of all modules below the folder.
func packages(ctx context.Context, root string) ([]pkg, error) {
	var all []pkg
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || d.Name() != "go.mod" {
			return nil
		}
		module := filepath.Dir(path)
		cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}", "./...")
		cmd.Dir, cmd.Stderr = module, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("go list in %s: %w", module, err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 2 {
				all = append(all, pkg{module: module, dir: f[0], path: f[1]})
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b pkg) int { return strings.Compare(a.path, b.path) })
	return all, err
}

func stress(ctx context.Context, s *stresser, from int, only string, list bool) (failed int, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return 0, fmt.Errorf("-packages: %w", err)
	}
	all, err := packages(ctx, ".")
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(p pkg) bool { return !match.MatchString(p.path) })
	runs := order(all, s.seed)
	if from < 1 || from > len(runs) {
		return 0, fmt.Errorf("-from %d: must be from 1 to %d, the number of runs", from, len(runs))
	}
	if s.folder == "" {
		if s.folder, err = os.MkdirTemp("", "stress-"); err != nil {
			return 0, err
		}
	} else if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return 0, err
	}
	fmt.Printf("seed %d, %d packages, %d runs from %d on, beside %d busy loops; what fails is kept in %s\n", s.seed, len(all), len(runs), from, runtime.NumCPU(), s.folder)
	defer s.drop()
	for i, r := range runs[from-1:] {
		if ctx.Err() != nil {
			fmt.Printf("ended before run %d, of the seed %d\n", from+i, s.seed)
			return failed, context.Cause(ctx)
		}
		if list {
			fmt.Printf("%4d %s\n", from+i, r)
			continue
		}
		began := time.Now()
		ok := s.one(ctx, from+i, r)
		if ctx.Err() != nil {
			continue
		}
		word := "ok    "
		if !ok {
			failed++
			word = "FAILED"
		}
		fmt.Printf("%4d/%d %s %6.1f s %s\n", from+i, len(runs), word, time.Since(began).Seconds(), r)
	}
	fmt.Printf("%d passed, %d failed\n", len(runs)-from+1-failed, failed)
	return failed, nil
}

// stresser runs one binary after the other.
type stresser struct {
	seed   uint64
	folder string   // for what failed runs have printed
	race   []string // how to build with the race detector
	binary string   // the last one that was built
	of     run      // what it was built for
}

func (s *stresser) drop() {
	if s.binary != "" {
		_ = os.Remove(s.binary)
	}
	s.binary = ""
}

// build makes the binary of a run, unless it is that of the last one. It is built without load,
// which is for tests.
func (s *stresser) build(ctx context.Context, r run) ([]byte, error) {
	if s.binary != "" && s.of.path == r.path && s.of.race == r.race {
		return nil, nil
	}
	s.drop()
	s.binary, s.of = filepath.Join(s.folder, "stress.test"), r
	binary, err := filepath.Abs(s.binary)
	if err != nil {
		return nil, err
	}
	args := []string{"test", "-c", "-o", binary}
	if r.race {
		args = append(args, s.race...)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, r.path)...)
	cmd.Dir = r.module
	out, err := cmd.CombinedOutput()
	s.binary = binary
	return out, err
}

// one reports whether a run has passed, and keeps what it has printed if it has not.
func (s *stresser) one(ctx context.Context, number int, r run) bool {
	out, err := s.build(ctx, r)
	if err == nil {
		var load []*exec.Cmd
		if load, err = burners(ctx); err == nil {
			out, err = s.test(ctx, r)
		}
		for _, c := range load {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	if err == nil || ctx.Err() != nil {
		return true
	}
	log := filepath.Join(s.folder, fmt.Sprintf("%03d.log", number))
	out = append(out, fmt.Sprintf("\n%s, tests in the order of %d: %v\n", r, s.seed, err)...)
	if err := os.WriteFile(log, out, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
	}
	for line := range bytes.Lines(out) {
		if bytes.Contains(line, []byte("--- FAIL")) || bytes.HasPrefix(line, []byte("panic: ")) || bytes.Contains(line, []byte("DATA RACE")) {
			fmt.Printf("        %s", line)
		}
	}
	return false
}

func (s *stresser) test(ctx context.Context, r run) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.binary, "-test.count="+strconv.Itoa(r.count),
		"-test.shuffle="+strconv.FormatUint(s.seed>>1, 10), "-test.timeout=2h")
	cmd.Dir = r.dir
	cmd.Env = os.Environ()
	if r.procs > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(r.procs))
	}
	cmd.WaitDelay = time.Minute
	return cmd.CombinedOutput()
}

// burners starts as many busy loops as there are processors.
func burners(ctx context.Context) ([]*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var all []*exec.Cmd
	for range runtime.NumCPU() {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), burnVariable+"=1")
		if _, err := cmd.StdinPipe(); err != nil { // open until the command has ended, or this process
			return all, err
		}
		if err := cmd.Start(); err != nil {
			return all, err
		}
		all = append(all, cmd)
	}
	return all, nil
}
