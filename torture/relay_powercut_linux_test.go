package torture_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/badnet"
)

// relayed are a server and devices of examples/relay, on a disk for each side.
type relayed struct {
	t       *testing.T
	program string
	server  *disk
	devices *disk
	network *badnet.Network
	front   string
	address atomic.Pointer[url.URL] // of the server
}

const relayDevices = 3

// args are those that all parts of the program have.
func (r *relayed) args(part string, more ...string) []string {
	return append([]string{part, "-server", r.server.dir, "-devices-in", r.devices.dir, "-devices", fmt.Sprint(relayDevices)}, more...)
}

// once runs a part that ends by itself.
func (r *relayed) once(part string) string {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), r.program, r.args(part)...).CombinedOutput()
	if err != nil {
		r.t.Errorf("%s: %v: %s", part, err, out)
	}
	return string(out)
}

// relayChild is a part that works.
type relayChild struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
}

func (r *relayed) start(part string, more ...string) *relayChild {
	r.t.Helper()
	c := &relayChild{cmd: exec.Command(r.program, r.args(part, more...)...), lines: make(chan string, 1000)}
	c.cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case c.lines <- lines.Text():
			default: // nobody waits for so much
			}
		}
	}()
	r.t.Cleanup(c.kill)
	return c
}

func (c *relayChild) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	for range c.lines {
	}
	_ = c.cmd.Wait()
}

func (r *relayed) startServer() *relayChild {
	r.t.Helper()
	c := r.start("server")
	for line := range c.lines {
		if _, at, ok := strings.Cut(line, "msg=listening addr="); ok {
			r.address.Store(&url.URL{Scheme: "http", Host: at})
			return c
		}
	}
	r.t.Fatal("the server has ended and not said where it listens")
	return nil
}

func (r *relayed) startDevices(jobs int) (all []*relayChild) {
	r.t.Helper()
	for i := range relayDevices {
		all = append(all, r.start("device", "-name", fmt.Sprintf("device-%02d", i+1), "-url", r.front, "-jobs", fmt.Sprint(jobs)))
	}
	return all
}

// cut takes the power of one side.
func (r *relayed) cut(d *disk, all ...*relayChild) {
	r.t.Helper()
	for _, c := range all {
		_ = c.cmd.Process.Kill() // first, see powerOff
	}
	d.cut()
	for _, c := range all {
		c.kill()
	}
	d.unmount()
	d.mount()
}

// The power of a server and that of its devices is cut at random moments. Each job that a device has
// acknowledged is on one of the two sides, and comes to the server once.
//
//errand:shows [relay-cut] | | the power of the devices and of their server is cut by turns
func TestPowerCut_Relay(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	random := dice(t)
	r := &relayed{t: t, program: buildRelay(t), server: newDisk(t, imageSize), devices: newDisk(t, imageSize)}
	r.network = badnet.New(&http.Transport{DisableCompression: true}, random.Uint64())
	defer r.network.Close()
	weather := badnet.Storm(0.02)
	weather.MaxDelay = 200 * time.Millisecond
	r.network.SetWeather(weather)
	front := httptest.NewServer(r.network.Proxy(r.address.Load))
	defer front.Close()
	r.front = front.URL
	r.once("prepare")
	server, jobs := r.startServer(), 0
	rounds(t, 0, 10, func(i int) {
		jobs += 200
		all := r.startDevices(jobs)
		<-time.After(between(random, 200*time.Millisecond, 3*time.Second))
		r.cut(r.server, server)
		server = r.startServer()
		<-time.After(between(random, 200*time.Millisecond, 3*time.Second))
		r.cut(r.devices, all...)
		t.Logf("after %d cuts on each side: %s", i+1, r.once("account"))
	})
	for _, c := range r.startDevices(jobs) {
		defer time.AfterFunc(5*time.Minute, func() { _ = c.stdin.Close() }).Stop() // which is told from an end by what waits
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("a device: %v", err)
		}
	}
	server.kill()
	text := r.once("account")
	t.Logf("in the end: %s", text)
	if !strings.Contains(text, " 0 wait on a device, 0 passing") {
		t.Error("not all has come")
	}
}
