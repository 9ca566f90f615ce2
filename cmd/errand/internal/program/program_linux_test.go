package program

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// role says what this program is when it is not the test.
const role = "PROGRAM_TEST_ROLE"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		if os.Getenv(role) != "unguarded" {
			Guard(os.Stdin)
		}
		return
	}
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	r, err := NewRunner("program", "guard")
	if err != nil {
		panic(err)
	}
	res := r.Run(context.Background(), &Program{Args: []string{"sh", "-c", os.Args[1]}, In: []byte("go\n"), Out: os.Stdout, Errs: io.Discard})
	fmt.Println("ended:", res)
}

// Programs end when the process that runs them is killed: by the kernel alone, and with
// all that they have started by the guard. The guard knows of a program before that has
// its input, which the second one reads.
//
//errand:shows commands of `errand work` | | they die with a worker that is killed, with all that they have started
func TestRunner_dies(t *testing.T) {
	for how, script := range map[string]string{
		"unguarded": `echo started; exec sleep 1000`,
		"guarded":   `read go; (trap "" TERM; sleep 1000) & echo started; wait`,
	} {
		t.Run(how, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self, script)
			cmd.Env = append(os.Environ(), role+"="+how)
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout = write
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			write.Close()
			lines := bufio.NewReader(read)
			if s, err := lines.ReadString('\n'); s != "started\n" {
				t.Fatalf("the program says %q, %v", s, err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			_ = read.SetReadDeadline(time.Now().Add(20 * time.Second))
			// The end of the pipe is that of all who could write to it.
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("the program lives on: %q, %v", rest, err)
			}
		})
	}
}

// A program outlives the thread that asked for its start.
//
//errand:shows commands of `errand work`
func TestRunner_threads(t *testing.T) {
	r, err := NewRunner("program", "guard")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", "read line; echo $line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	thread, end := make(chan int), make(chan struct{})
	defer close(end)
	var ask func()
	ask = func() {
		runtime.LockOSThread()            // and so the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() { // but for the first one, which another must not get
			go ask()
			<-end
			return
		}
		if _, err := r.start(cmd); err != nil {
			t.Error(err)
		}
		thread <- unix.Gettid()
	}
	go ask()
	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	for {
		if _, err := os.Stat(task); err != nil {
			break
		}
		runtime.Gosched()
	}
	if _, err := io.WriteString(in, "alive\n"); err != nil {
		t.Error(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil || out.String() != "alive\n" {
		t.Errorf("the program says %q, %v", out.String(), err)
	}
}
