package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/relay/internal/ratchet"
)

// Answer is what a server answers.
type Answer struct {
	Status     int            // of HTTP
	RetryAfter int            // seconds; zero if the header is not there
	Answer     ratchet.Answer // if Status is 200
	Error      string         // what is wrong, if it is not; cut to 200 bytes
}

// UnsignedError is the error of what is not an answer, since the server has not signed it as the answer to
// this request. Status is that of HTTP. Err says what is wrong with it.
type UnsignedError struct {
	Status int
	Err    error
}

// Error returns the status, and what is wrong.
func (e *UnsignedError) Error() string {
	return fmt.Sprintf("errand: relay: status %d is not signed as the answer of the server: %v", e.Status, e.Err)
}

// Unwrap returns Err.
func (e *UnsignedError) Unwrap() error { return e.Err }

const (
	answerWords          = 8
	minStatus, maxStatus = 200, 599
	maxRetryAfter        = 1<<31 - 1
	outcomes             = " edrbl" // by ratchet.Outcome
)

var statuses = []string{"", "checked", "taken", "stale", "held", "forked", "resumed", "renewed"}

// answer is the body of an answer.
type answer struct {
	Status string  `json:"status,omitempty"`
	Check  ID      `json:"check,omitzero"`
	N      uint64  `json:"n,omitempty"`
	Token  ID      `json:"token,omitzero"`
	S      *taking `json:"s,omitempty"`
	Error  string  `json:"error,omitempty"`
}

type taking struct {
	N        uint64          `json:"n"`
	Outcomes string          `json:"outcomes,omitempty"`
	Jobs     []byte          `json:"jobs,omitempty"`
	Reasons  json.RawMessage `json:"reasons,omitempty"`
}

// SignAnswer returns the answer to a request. Reasons of refusals are cut to 200 bytes.
func SignAnswer(of Head, a Answer, by Signer) (Message, error) {
	if a.Status < minStatus || a.Status > maxStatus {
		return Message{}, wrong("status", a.Status, "must be %d to %d", minStatus, maxStatus)
	}
	if a.RetryAfter < 0 || a.RetryAfter > maxRetryAfter {
		return Message{}, wrong("retry", a.RetryAfter, "must be 0 to %d", maxRetryAfter)
	}
	if of.signature == "" {
		return Message{}, wrong("request", "as it is", "must have a signature")
	}
	out := answer{Error: Cut(a.Error, MaxReason)}
	if a.Status == http.StatusOK {
		var err error
		if out, err = encodeAnswer(a.Answer); err != nil {
			return Message{}, err
		}
	}
	body, err := pack(of.Encoding, out)
	if err != nil {
		return Message{}, fmt.Errorf("errand: relay: encode answer: %w", err)
	}
	words := []string{version, "answer", of.signature, strconv.Itoa(a.Status), strconv.Itoa(a.RetryAfter)}
	header, _ := sign(append(words, seal(of.Encoding, body).words()...), by)
	if a.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(a.RetryAfter))
	}
	return Message{header, body}, nil
}

func encodeAnswer(a ratchet.Answer) (answer, error) {
	if a.Status < ratchet.Checked || a.Status > ratchet.Renewed {
		return answer{}, wrong("answer.status", int(a.Status), "must be Checked to Renewed")
	}
	out := answer{Status: statuses[a.Status], Check: ID(a.Check), N: a.N, Token: ID(a.T)}
	if a.S.N == 0 && len(a.S.Verdicts) == 0 {
		return out, nil
	}
	s, reasons, letters := taking{N: a.S.N}, []string{}, strings.Builder{}
	for i, v := range a.S.Verdicts {
		if v.Outcome < ratchet.Enqueued || v.Outcome > ratchet.Later || i == MaxJobs {
			return out, wrong(fmt.Sprintf("s.verdicts[%d]", i), int(v.Outcome), "must be Enqueued to Later, of at most %d jobs", MaxJobs)
		}
		letters.WriteByte(outcomes[v.Outcome])
		s.Jobs = append(s.Jobs, v.Job[:]...)
		if v.Outcome == ratchet.Refused {
			reasons = append(reasons, Cut(v.Reason, MaxReason))
		}
	}
	s.Outcomes = letters.String()
	out.S = &s
	if len(reasons) == 0 {
		return out, nil
	}
	var err error
	s.Reasons, err = seconds.JSON(reasons)
	return out, err
}

// OpenAnswer reads what has come to a device in answer to a request, of which SignRequest has returned the
// head. What the server has not signed as that answer is an [UnsignedError].
func OpenAnswer(of Head, status int, header http.Header, body io.Reader, from Verifier, l Limits) (Answer, error) {
	l = l.withDefaults()
	s, retryAfter, err := openAnswer(of, status, header, from, l)
	var sent []byte
	if err == nil {
		sent, err = s.read(body)
	}
	if err != nil {
		return Answer{}, &UnsignedError{status, err}
	}
	text, err := s.unpack(sent, l)
	if err != nil {
		return Answer{}, err
	}
	var in answer
	if err := decode("answer", text, &in); err != nil {
		return Answer{}, err
	}
	a := Answer{Status: status, RetryAfter: retryAfter, Error: Cut(in.Error, MaxReason)}
	if status == http.StatusOK {
		a.Answer, err = in.decode(of.ID)
	}
	return a, err
}

// openAnswer verifies the header of an answer, and returns what it says of the body, and its RetryAfter.
func openAnswer(of Head, status int, header http.Header, from Verifier, l Limits) (s sealed, retryAfter int, err error) {
	t, _, bytes, err := open(header, "answer", answerWords)
	if err != nil {
		return s, 0, err
	}
	if !from.Verify([]byte(t.line), bytes) {
		return s, 0, wrong(SignatureHeader, header.Get(SignatureHeader), "must be that of the server")
	}
	t.is("request", of.signature)
	t.is("status", strconv.Itoa(status))
	retryAfter = t.small("retry", maxRetryAfter)
	if want := header.Values("Retry-After"); retryAfter > 0 && !slices.Equal(want, []string{strconv.Itoa(retryAfter)}) || retryAfter == 0 && len(want) > 0 {
		t.fail("retry", retryAfter, fmt.Sprintf("must be that of the header Retry-After, %q", want))
	}
	s = t.sealed(l)
	return s, retryAfter, t.err
}

func (in answer) decode(request ratchet.ID) (a ratchet.Answer, err error) {
	a = ratchet.Answer{Request: request, Check: ratchet.Check(in.Check), N: in.N, T: ratchet.Token(in.Token)}
	status := slices.Index(statuses, in.Status)
	if status <= 0 {
		return a, wrong("status", in.Status, "must be one of %s", strings.Join(statuses[1:], ", "))
	}
	a.Status = ratchet.Status(status)
	if in.S == nil {
		return a, nil
	}
	a.S.N = in.S.N
	a.S.Verdicts, err = in.S.verdicts()
	return a, err
}

func (s *taking) verdicts() ([]ratchet.Verdict, error) {
	if err := atMost("s.outcomes", len(s.Outcomes), MaxJobs); err != nil {
		return nil, err
	}
	const size = len(ratchet.ID{})
	refused := strings.Count(s.Outcomes, "r")
	if len(s.Jobs) != size*len(s.Outcomes) {
		return nil, wrong("s.jobs", len(s.Jobs), "must be %d bytes for each of %d outcomes", size, len(s.Outcomes))
	}
	var reasons []string
	if len(s.Reasons) > 0 {
		var err error
		if reasons, err = list[string]("s.reasons", s.Reasons, refused); err != nil {
			return nil, err
		}
	}
	if len(reasons) != refused {
		return nil, wrong("s.reasons", len(reasons), "must be %d, one for each r", refused)
	}
	var all []ratchet.Verdict
	for i, letter := range []byte(s.Outcomes) {
		v := ratchet.Verdict{Job: ratchet.ID(s.Jobs[size*i : size*(i+1)])}
		switch v.Outcome = ratchet.Outcome(max(0, strings.IndexByte(outcomes, letter))); v.Outcome {
		case 0:
			return nil, wrong("s.outcomes", s.Outcomes[i:], "must begin with one of"+outcomes)
		case ratchet.Refused:
			v.Reason, reasons = Cut(reasons[0], MaxReason), reasons[1:]
		}
		all = append(all, v)
	}
	return all, nil
}
