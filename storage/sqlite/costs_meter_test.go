package sqlite_test

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"unsafe"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// cost is what work has cost.
type cost struct {
	statements int // that SQLite has run to their end
	pages      int // that commits have written to the log
	steps      int // of SQLite's virtual machine
	allocs     int // on the heap, of the whole process
}

// meter counts what SQLite does on the connections that are opened while it is on. There is one,
// since SQLite calls a function without a receiver.
var meter struct {
	mu    sync.Mutex
	on    bool
	conns []driver.DBStatus
	cost
	texts map[string]*tally
	stall chan struct{} // the next statement ends once this is closed; nil: at once
}

// tally is what one statement has cost.
type tally struct{ n, steps int }

var hookMeter = sync.OnceFunc(func() {
	driver.RegisterConnectionHook(func(conn driver.ExecQuerierContext, _ string) error {
		meter.mu.Lock()
		defer meter.mu.Unlock()
		if !meter.on {
			return nil
		}
		meter.conns = append(meter.conns, conn.(driver.DBStatus))
		return traceStatements(lib.Xsqlite3_trace_v2, conn)
	})
})

// turnMeter turns the meter on, for new connections, or off.
func turnMeter(on bool) {
	hookMeter()
	meter.mu.Lock()
	defer meter.mu.Unlock()
	meter.on, meter.conns, meter.texts = on, nil, map[string]*tally{}
}

// traceStatements has SQLite call [statementEnded] after each statement of a connection of the driver. TLS is the
// type of the library on which SQLite is compiled, which go.mod need not name for that.
func traceStatements[TLS any](set func(tls TLS, db uintptr, mask uint32, f, arg uintptr) int32, conn any) error {
	c := reflect.ValueOf(conn).Elem()
	tls := c.FieldByName("tls").UnsafePointer()
	f := statementEnded
	if rc := set(*(*TLS)(unsafe.Pointer(&tls)), uintptr(c.FieldByName("db").Uint()), lib.SQLITE_TRACE_PROFILE, *(*uintptr)(unsafe.Pointer(&f)), 0); rc != lib.SQLITE_OK {
		return fmt.Errorf("sqlite3_trace_v2: %d", rc)
	}
	return nil
}

// statementEnded is called by SQLite.
func statementEnded(tls unsafe.Pointer, _ uint32, _, stmt, _ uintptr) int32 {
	steps := statusOf(lib.Xsqlite3_stmt_status, tls, stmt)
	text := cString(textOf(lib.Xsqlite3_sql, tls, stmt))
	meter.mu.Lock()
	meter.statements++
	meter.steps += steps
	t := meter.texts[string(text)]
	if t == nil {
		t = &tally{}
		meter.texts[string(text)] = t
	}
	t.n++
	t.steps += steps
	stall := meter.stall
	meter.stall = nil
	meter.mu.Unlock()
	if stall != nil {
		<-stall
	}
	return 0
}

func textOf[TLS any](f func(TLS, uintptr) uintptr, tls unsafe.Pointer, stmt uintptr) uintptr {
	return f(*(*TLS)(unsafe.Pointer(&tls)), stmt)
}

func statusOf[TLS any](f func(TLS, uintptr, int32, int32) int32, tls unsafe.Pointer, stmt uintptr) int {
	return int(f(*(*TLS)(unsafe.Pointer(&tls)), stmt, lib.SQLITE_STMTSTATUS_VM_STEP, 1))
}

// cString returns the bytes at an address of C up to the first zero, as they are there.
func cString(at uintptr) []byte {
	start, n := *(*unsafe.Pointer)(unsafe.Pointer(&at)), 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return unsafe.Slice((*byte)(start), n)
}

// readCost returns what all work so far has cost, once all goroutines of the bubble wait.
func readCost(t testing.TB) cost {
	synctest.Wait()
	meter.mu.Lock()
	c := meter.cost
	for _, conn := range meter.conns {
		n, _, err := conn.Status(driver.DBStatusCacheWrite, false)
		if err != nil {
			t.Fatal(err)
		}
		c.pages += n
	}
	meter.mu.Unlock()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.allocs = int(m.Mallocs)
	return c
}

func (c cost) less(d cost) cost {
	return cost{c.statements - d.statements, c.pages - d.pages, c.steps - d.steps, c.allocs - d.allocs}
}

// forgetTexts has [dearest] list what comes from now on. It keeps the memory.
func forgetTexts() {
	meter.mu.Lock()
	defer meter.mu.Unlock()
	for _, t := range meter.texts {
		*t = tally{}
	}
}

// dearest lists the statements by their steps, for each of so many jobs.
func dearest(jobs int) string {
	meter.mu.Lock()
	defer meter.mu.Unlock()
	var out strings.Builder
	for _, text := range slices.SortedFunc(maps.Keys(meter.texts), func(a, b string) int { return meter.texts[b].steps - meter.texts[a].steps }) {
		if t := meter.texts[text]; t.n > 0 {
			fmt.Fprintf(&out, "\n%9.3f a job, %9.3f steps: %.150s", float64(t.n)/float64(jobs), float64(t.steps)/float64(jobs), strings.Join(strings.Fields(text), " "))
		}
	}
	return out.String()
}
