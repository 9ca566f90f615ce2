package cookbook_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// Invite is what the jobs of release 1 are about.
type Invite struct {
	To string `json:"to"`
}

// Kind names the type of job.
func (Invite) Kind() string { return "invite" }

// Invite2 is the same in release 2, which adds a field.
type Invite2 struct {
	To       string `json:"to"`
	Language string `json:"language,omitempty"` // empty: en, as in release 1
}

// Kind names the type of job.
func (Invite2) Kind() string { return "invite" }

// InviteMany is a kind of its own, since its args cannot be read as an Invite.
type InviteMany struct {
	To []string `json:"to"`
}

// Kind names the type of job.
func (InviteMany) Kind() string { return "invite_many" }

// InviteBroken is what must not be done: one kind, and a field of another type.
type InviteBroken struct {
	To []string `json:"to"`
}

// Kind names the type of job.
func (InviteBroken) Kind() string { return "invite" }

// release1, release2 and broken register the handlers of three releases. What
// a broken one could not read is put back by the next.
func release1(w *errand.Worker) {
	errand.Handle(w, func(_ context.Context, job *errand.Job[Invite]) error {
		fmt.Println("1 invites", job.Args.To)
		return nil
	})
}

func release2(w *errand.Worker) {
	errand.Handle(w, func(_ context.Context, job *errand.Job[Invite2]) error {
		fmt.Println("2 invites", job.Args.To, "in", cmp.Or(job.Args.Language, "en"))
		return nil
	})
	errand.Handle(w, func(_ context.Context, job *errand.Job[InviteMany]) error {
		fmt.Println("2 invites", len(job.Args.To), "people")
		return nil
	})
}

func broken(w *errand.Worker) {
	errand.Handle(w, func(context.Context, *errand.Job[InviteBroken]) error { return nil })
}

// release is a process: it enqueues, and if it has handlers works until all that
// they can handle has ended. It returns what it has left.
func release(path string, handlers func(*errand.Worker), jobs ...errand.Args) []errand.Count {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := must(errand.Open(ctx, path, &errand.Options{
		Policy: policy.Policy{}, Retention: -1, Logger: slog.New(slog.DiscardHandler), // no retries
	}))
	defer func() { check(q.Close()) }()
	for _, args := range jobs {
		must(q.Enqueue(ctx, args, nil))
	}
	if handlers == nil {
		return nil
	}
	must(q.DeadLetters().Redrive(ctx, errand.JobFilter{Kind: "invite", Reason: errand.ReasonDecode}, nil))
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	handlers(w)
	errand.Handle(w, func(context.Context, *errand.Job[Last]) error { stop(); return nil })
	must(q.Enqueue(ctx, Last{}, nil))
	check(w.Run(ctx))
	return must(q.Counts(context.Background()))
}

// Jobs outlive releases: what one has enqueued another one handles, also after
// a release was rolled back.
func Example_releases() {
	dir := must(os.MkdirTemp("", "errand-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "jobs.db")

	// Jobs of release 1 are handled by release 2, and the other way round.
	release(path, nil, Invite{To: "ada"})
	release(path, release2)
	release(path, nil, Invite2{To: "grace", Language: "fr"})
	release(path, release1)

	// A kind that a release does not have waits for one that has.
	release(path, nil, InviteMany{To: []string{"ada", "grace"}})
	fmt.Println("release 1 leaves", release(path, release1))
	release(path, release2)

	// Args that cannot be read are kept as dead letters, and can be put back
	// once there is a release that reads them.
	release(path, nil, Invite{To: "alan"})
	fmt.Println("the broken one leaves", release(path, broken))
	release(path, release2)
	// Output:
	// 2 invites ada in en
	// 1 invites grace
	// release 1 leaves [{default invite_many ready 1}]
	// 2 invites 2 people
	// the broken one leaves [{default invite dead 1}]
	// 2 invites alan in en
}
