package storagetest

import (
	"context"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

// checkpointTx is CheckpointTx with progress, and checks the answer.
func (f *fixture) checkpointTx(s storage.Store, tx any, l storage.Leased, data string, want storage.ItemResult) {
	f.Helper()
	c := storage.Checkpoint{Lease: l.Lease, Data: []byte(data), Progress: f.progress(1)}
	r, err := f.transacts(s).CheckpointTx(f.ctx, tx, c)
	clear(c.Data)
	if err != nil || r != want {
		f.Errorf("CheckpointTx returned %d, %v; want %d", r, err, want)
	}
}

var checkpointTxCases = []testCase{
	{"checkpointtx_commits", `CheckpointTx is Checkpoint inside tx: it is kept if tx commits.`, func(f *fixture) {
		f.transacts(f.s)
		other := f.db.Open()
		l := f.stopped("before")
		f.back(l, storage.OutcomeCrashed, f.now)
		l = f.leaseOne(f.s)
		f.begins(f.s, l)
		unseen := func(what string) {
			f.Helper()
			for _, s := range []storage.Store{f.s, other} {
				r, err := s.Job(f.ctx, l.ID)
				f.must(err)
				if f.resumes(what, r.Checkpoint, "before"); r.Crashes != 1 || r.Progress != nil {
					f.Errorf("%s: %d crashes, progress %+v", what, r.Crashes, r.Progress)
				}
			}
		}
		two := func(tx any) {
			f.Helper()
			f.checkpointTx(f.s, tx, l, "during", storage.Applied)
			f.checkpointTx(f.s, tx, l, "after", storage.Applied)
			unseen("before the commit")
		}
		for way, vanishes := range f.vanishes() {
			vanishes(f.s, two)
			unseen("after " + way)
		}
		f.commits(f.s, two)
		f.reached("committed", l.ID, "after")
		f.far("committed", l.ID, f.progress(1))
		if r := f.record(l.ID); r.Crashes != 0 {
			f.Errorf("committed: %d crashes", r.Crashes)
		}
		f.back(l, storage.OutcomeRetry, f.now)
		l = f.leaseOne(f.s)
		f.resumes("leased", l.Checkpoint, "after")
		f.declines(f.s, func(tx any) { f.checkpointTx(f.s, tx, l, "again", storage.Applied) })
		f.keep(keep, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.reached("done", l.ID, "")
	}},

	{"checkpointtx_with_end", `CheckpointTx is Checkpoint inside tx: it is kept if tx commits.
FinishTx ends leases with OutcomeDone inside tx, in their order, as an Exchange ends them
Result is kept with a job that ends with OutcomeDone, unless nil. Progress, if not nil, is kept with any job that ends.`, func(f *fixture) {
		s := f.transacts(f.s)
		for keeps, retention := range retentions {
			for _, said := range []bool{false, true} {
				l := f.begun(f.s)
				end := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone, Result: []byte("ok")}
				want := f.progress(1)
				if said {
					f.later(time.Second)
					want = f.progress(2)
					end.Progress = want
				}
				both := func(tx any) {
					f.Helper()
					if r, err := s.CheckpointTx(f.ctx, tx, storage.Checkpoint{Lease: l.Lease, Data: []byte("x"), Progress: f.progress(1)}); err != nil || r != storage.Applied {
						f.Errorf("CheckpointTx returned %d, %v", r, err)
					}
					if r, _, err := finishOneTx(s)(f.ctx, tx, f.now, end, retention, nil); err != nil || r != storage.Applied {
						f.Errorf("FinishTx returned %d, %v", r, err)
					}
				}
				f.declines(f.s, both)
				f.is(storage.Running, l.ID)
				f.far("rolled back", l.ID, nil)
				f.brought("rolled back", l.ID, "")
				if !said {
					want = f.progress(1)
				}
				f.commits(f.s, both)
				if f.is(doneIf(keeps), l.ID); keeps {
					f.far("committed", l.ID, want)
					f.brought("committed", l.ID, "ok")
					f.reached("committed", l.ID, "")
				}
			}
		}
	}},

	{"checkpointtx_spoils", `If the answer is not [Applied], or after an error, tx cannot commit any more. It returns [ErrWrongDatabase] for a transaction on another database.
The answer is [Applied], or one of the other answers of LookTx, see [TxEnqueuer]: then nothing was kept.`, func(f *fixture) {
		s, other := f.transacts(f.s), f.db.Open()
		sound, lost, asked, ended, elsewhere := f.begun(f.s), f.run(f.s), f.begun(f.s), f.begun(f.s), f.begun(other)
		f.back(lost, storage.OutcomeRetry, f.now.Add(time.Hour))
		f.cancel(asked.ID)
		f.commits(f.s, func(tx any) { f.finishTx(f.s, tx, ended, storage.Applied) })
		if r, err := f.s.Checkpoint(f.ctx, storage.Checkpoint{Lease: ended.Lease, Data: []byte("late")}); err != nil || r != storage.Ended {
			f.Errorf("Checkpoint of what FinishTx has ended returned %d, %v; want ended", r, err)
		}
		spoils := func(what string, call func(tx any)) {
			f.Helper()
			var ids []storage.ID
			f.failsToCommit(what, f.s, func(tx any) {
				ids = f.addTx(f.s, tx, newJob())
				f.checkpointTx(f.s, tx, sound, what, storage.Applied)
				call(tx)
			})
			f.is("", ids...)
			f.reached(what, sound.ID, "")
		}
		for _, c := range []struct {
			what string
			l    storage.Leased
			want storage.ItemResult
		}{
			{"lost", lost, storage.Lost}, {"never held", storage.Leased{Lease: storage.Lease{Key: 1 << 40, Token: 1 << 40}}, storage.Lost},
			{"held by another", elsewhere, storage.Lost}, {"asked to stop", asked, storage.Cancelling}, {"ended", ended, storage.Ended},
		} {
			spoils(c.what, func(tx any) { f.checkpointTx(f.s, tx, c.l, "late", c.want) })
		}
		spoils("ended before in the transaction", func(tx any) {
			f.finishTx(f.s, tx, sound, storage.Applied)
			f.checkpointTx(f.s, tx, sound, "late", storage.Ended)
		})
		over, cancel := context.WithCancel(f.ctx)
		cancel()
		spoils("an error", func(tx any) {
			if _, err := s.CheckpointTx(over, tx, storage.Checkpoint{Lease: sound.Lease, Data: []byte("late")}); !errors.Is(err, context.Canceled) {
				f.Errorf("CheckpointTx with a context that has ended returned %v", err)
			}
		})
		f.reached("asked to stop", asked.ID, "")
		f.reached("lost", lost.ID, "")
		f.commits(f.s, func(tx any) { f.checkpointTx(f.s, tx, sound, "at last", storage.Applied) })
		f.reached("committed", sound.ID, "at last")
	}},
}
