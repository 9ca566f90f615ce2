package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
)

// The test is also the programs that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "server" || os.Args[1] == "device") {
		main()
		return
	}
	os.Exit(m.Run())
}

// Three devices and their server are killed twice each, over a network that does all it can. Each job is
// received once.
func TestProgram(t *testing.T) {
	var out bytes.Buffer
	err := program(context.WithoutCancel(t.Context()), []string{"-devices", "3", "-jobs", "200", "-kills", "2", "-seed", "1",
		"-server", t.TempDir(), "-devices-in", t.TempDir()}, &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 kills of devices, 2 of the server",
		fmt.Sprintf("%d refused, 0 wait on a device, 0 passing", 3*(200/53)),
	} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("the account does not say %q", want)
		}
	}
}
