package ratchet_test

import "testing"

// broken are the sentences of the protocol, each with a model in which its absence is found. A test breaks
// one at a time, where it passes what the two ends say on.
var broken = []struct{ sentence, model string }{
	// The requests.
	{"an ask is two requests", "start"},
	{"c is the hash of T", "start"},
	{"an answer is to the request under way", "one job"},
	{"the token of a send is T", "start"},
	{"the token of a send is not P", "start"},
	{"an ask may show P", "start"},
	{"an ask changes T", "start"},
	{"P is the token shown", "start"},
	{"an ask leaves S", "start"},
	// The server's commit.
	{"jobs and row are one commit", "start"},
	{"the answer leaves after the commit", "start"},
	{"after a refusal the group is behind", "start"},
	{"after later all is later", "verdicts"},
	// The device's commit.
	{"verdicts are of the send under way", "start"},
	{"a settlement is one commit: the row first", "start"},
	{"a settlement is one commit: the ends first", "start"},
	{"it sends after the commit", "start"},
	{"a job that cannot be ended is kept with its verdict", "start"},
	{"a kept job is not sent", "start"},
	{"a kept verdict is deleted as it ends its job", "processes"},
	{"a job that was cancelled here is named", "verdicts"},
	{"a dead job is kept with a verdict that it is there", "device put back"},
	// The owner.
	{"who takes over asks first", "verdicts"},
	{"the owner is checked before the ask", "start"},
	{"the owner is checked in the commit", "start"},
	// Forks.
	{"a fork is found only with a good c", "server put back"},
	{"a fork holds the stream", "clone"},
	{"a stream that is held takes nothing", "server put back"},
	{"after accept jobs are looked up", "clone"},
	{"others get new streams", "clone"},
	{"who shows the highest n goes on", "server put back"},
	{"nobody has T after accept", "server put back"},
	{"missing is what came after S", "server put back"},
	{"what S says of a job goes before", "server put back"},
	{"who goes on is told what is missing", "server put back"},
}

func TestModel_broken(t *testing.T) {
	for _, b := range broken {
		t.Run(b.sentence, func(t *testing.T) {
			m := models[b.model]
			m.broken = b.sentence
			met, history := m.search(14, 1)
			if history == nil {
				t.Fatalf("none of %d worlds is wrong", met)
			}
			t.Logf("%d steps, %d worlds", len(history)-1, met)
			for i, s := range history {
				t.Logf("%2d %s", i+1, s)
			}
		})
	}
}
