package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/errandq/errand"
)

// refusal is an error with a page of its own.
type refusal struct {
	status int
	text   string // what is the case
	remedy string // what to do; empty: nothing
	cause  error  // not shown
}

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return e.cause }

// faults say what errors mean to people. The first that matches counts. If there is no text, it is
// that of the error.
var faults = []struct {
	err          error
	status       int
	text, remedy string
}{
	{errand.ErrInvalid, http.StatusBadRequest, "", "Correct it, in the address or in the form, and send it again."},
	{errand.ErrUnknownOutcome, http.StatusServiceUnavailable, "Whether it was written is not known, and so the queue has closed itself.", "Start the program again, and look."},
	{errand.ErrClosed, http.StatusServiceUnavailable, "The queue is closed.", "Start the program again that serves this page."},
	{errand.ErrQueueFull, http.StatusConflict, "", "Wait until jobs have ended, or set another cap."},
	{errand.ErrFull, http.StatusServiceUnavailable, "The disk is full.", "Make room, then do it again."},
	{errand.ErrReadOnly, http.StatusServiceUnavailable, "The file cannot be written.", "The queue is open for reading only, or the file or its folder may not be written by this user."},
	{errand.ErrCorrupt, http.StatusServiceUnavailable, "The file is damaged.", "errand doctor says what is damaged, and docs/operations.md what to do."},
	{errand.ErrTooNew, http.StatusServiceUnavailable, "", "Build the program with the newer version of errand."},
	{errand.ErrBusy, http.StatusServiceUnavailable, "Another program holds the file.", "Try again. A transaction that stays open for long is a likely cause."},
	{errand.ErrNotFound, http.StatusNotFound, "It is not there any more.", "It may have been deleted since. The lists show what is there."},
	{errand.ErrLive, http.StatusConflict, "The job has not ended.", "Cancel it first."},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "The queue has not answered within " + took(readFor) + ".", "The disk or another program may be busy. Try again."},
}

// refused returns err as a page shows it.
func refused(err error) *refusal {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r
	}
	for _, f := range faults {
		if errors.Is(err, f.err) {
			return &refusal{status: f.status, text: cmp.Or(f.text, messageOf(err)), remedy: f.remedy, cause: err}
		}
	}
	return &refusal{status: http.StatusServiceUnavailable, text: messageOf(err), remedy: "See errand doctor and the log of the program.", cause: err}
}

// undone says why an action was not done, and what to do. It may have been begun, unlike what
// refused is about.
func undone(err error) (text, remedy string) {
	if r := (*refusal)(nil); !errors.As(err, &r) && errors.Is(err, context.DeadlineExceeded) {
		return "It has not ended within " + took(actFor) + ".", "The disk or another program may be busy. Look how things are before you do it again."
	}
	r := refused(err)
	return r.text, r.remedy
}

// messageOf returns what an error says to people, see wordsOf.
func messageOf(err error) string { return wordsOf(err.Error()) }

// wordsOf returns the text of an error without the name of the library, and each of several faults
// with the next after a semicolon.
func wordsOf(text string) string {
	const name = "errand: "
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.ReplaceAll(strings.TrimPrefix(lines[i], name), ": "+name, ": ")
	}
	return strings.Join(lines, "; ")
}

// isUnreadable reports whether an error is about the text of one message, which says nothing of the
// rest of the file.
func isUnreadable(err error) bool {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	return errors.Is(err, errand.ErrCorrupt) && (errors.As(err, &syntax) || errors.As(err, &mismatch))
}
