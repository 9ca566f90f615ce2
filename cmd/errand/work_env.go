package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	queue "github.com/errandq/errand"
)

// Variables of the environment of a command.
const (
	varJobID   = "ERRAND_JOB_ID"
	varAttempt = "ERRAND_ATTEMPT"
	varKind    = "ERRAND_KIND"
	varQueue   = "ERRAND_QUEUE"
	varResult  = "ERRAND_RESULT"
	varHeaders = "ERRAND_HEADERS"
	varHeader  = "ERRAND_HEADER_"

	varCheckpoint = "ERRAND_CHECKPOINT"
)

// inherited returns the environment without the variables of another job.
func inherited(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return strings.HasPrefix(name, varHeader) ||
			slices.Contains([]string{varJobID, varAttempt, varKind, varQueue, varResult, varHeaders, varCheckpoint}, name)
	})
}

// environment returns the variables of one attempt. A header whose value no variable
// can hold is in ERRAND_HEADERS alone. Of names that become the same the last counts.
func environment(job *queue.Job[queue.RawArgs], file string) []string {
	env := []string{
		varJobID + "=" + job.ID.String(), fmt.Sprintf("%s=%d", varAttempt, job.Attempt),
		varKind + "=" + job.Kind, varQueue + "=" + job.Queue, varResult + "=" + file,
	}
	var at json.RawMessage
	if found, err := job.Resume(&at); found && err == nil {
		env = append(env, varCheckpoint+"="+string(at))
	}
	headers := []byte("{}")
	if len(job.Headers) > 0 {
		headers, _ = json.Marshal(job.Headers) // strings always marshal
	}
	env = append(env, varHeaders+"="+string(headers))
	for _, name := range slices.Sorted(maps.Keys(job.Headers)) {
		if value := job.Headers[name]; !strings.Contains(value, "\x00") {
			env = append(env, variable(name)+"="+value)
		}
	}
	return env
}

// variable returns the name of the variable for a header: in capital letters, and with
// _ for all that is neither a letter of ASCII nor a digit.
func variable(header string) string {
	return varHeader + strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, header)
}

const (
	maxResult = 192 << 10
	// mostSeconds is a hundred years.
	mostSeconds = 100 * 366 * 24 * 3600
)

// result is what a command says of its attempt in the file that ERRAND_RESULT names.
type result struct {
	Error      string `json:"error"`
	RetryAfter wait   `json:"retry_after"`
	Snooze     wait   `json:"snooze"`
	Cancel     bool   `json:"cancel"`

	Checkpoint json.RawMessage `json:"checkpoint"`
	Result     json.RawMessage `json:"result"`
}

// beside returns what counts only beside a status other than 0.
func (r result) beside() bool {
	return r.Error != "" || r.RetryAfter != 0 || r.Snooze != 0 || r.Cancel || r.Checkpoint != nil
}

type wait float64

func (s wait) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// readResult reads the file of an attempt. With an error the result is the zero one.
func readResult(name string) (result, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return result{}, nil
	case err != nil:
		return result{}, err
	case !info.Mode().IsRegular():
		return result{}, errors.New("not a regular file")
	case info.Size() > maxResult:
		return result{}, fmt.Errorf("larger than %d bytes", maxResult)
	}
	text, err := os.ReadFile(name)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return result{}, err
	}
	var r result
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&r)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return result{}, fmt.Errorf("%s must not be a JSON %s", wrong.Field, wrong.Value)
	}
	if err != nil {
		return result{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return result{}, errors.New("more than one object")
	}
	for _, kept := range []*json.RawMessage{&r.Checkpoint, &r.Result} {
		if string(*kept) == "null" {
			*kept = nil
		}
	}
	for _, s := range []struct {
		name  string
		value wait
	}{{"retry_after", r.RetryAfter}, {"snooze", r.Snooze}} {
		if s.value < 0 || s.value > mostSeconds {
			return result{}, fmt.Errorf("%s must be between 0 and %d seconds", s.name, int64(mostSeconds))
		}
	}
	return r, nil
}

// oneLine returns text with a space for each run of spaces, line ends and control
// characters.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool { return r <= ' ' || 0x7f <= r && r < 0xa0 }), " ")
}

// cutText returns at most n bytes of valid text.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
