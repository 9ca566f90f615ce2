package sqlite

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// Every statement on the way of a job must find its rows by an index, in the
// order that it needs. Tables with a handful of rows may be scanned.
func TestStatements_UseIndexes(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for text, want := range map[string]string{
		sqlMeta:         "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlTakeLock:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlNextJob:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlFirstFrom:    "USING COVERING INDEX errand_job_ready (lane>?)",
		sqlHeads:        "USING INDEX errand_job_ready (lane=?)",
		sqlNext:         "USING COVERING INDEX errand_job_scheduled",
		sqlPromote:      "USING COVERING INDEX errand_job_scheduled (due_at<?)",
		sqlHeld:         "USING INDEX errand_job_running (instance=?)",
		sqlUnregistered: "USING INDEX errand_job_running",
		sqlOwnLeases:    "USING INDEX errand_job_running (instance=?)",
		sqlMoveLeases:   "USING INDEX errand_job_running (instance=?)",
		sqlHandBack:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlExtend:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlLease:        "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlLeaseRun:     "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlDropOptions:  "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlKeepRun:      "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlDropRun:      "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlExtendAsked:  "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlReschedule:   "USING INTEGER PRIMARY KEY (rowid=?)",

		sqlIsCancelling:  "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlKeep:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlBury:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropJob:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlTake:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropInstance:  "USING COVERING INDEX errand_job_running (instance=?)",
		sqlDeletePayload: "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlPayload:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlTags:          "USING COVERING INDEX errand_tag_job (job=?)",
		sqlTagsOf:        "SEARCH t USING COVERING INDEX errand_tag_job (job=?)",
		sqlShortOption:   "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlOption:        "SEARCH o USING INTEGER PRIMARY KEY (rowid=?)",
		sqlOptionsOf:     "SEARCH o USING INTEGER PRIMARY KEY (rowid=?)",
		sqlStarts:        "USING COVERING INDEX errand_option_start (epoch=? AND start_by>? AND start_by<?)",
		sqlDeadlines:     "USING COVERING INDEX errand_option_deadline (epoch=? AND deadline>? AND deadline<?)",
		sqlNextStart:     "USING COVERING INDEX errand_option_start (epoch=? AND start_by>?)",
		sqlNextDeadline:  "USING COVERING INDEX errand_option_deadline (epoch=? AND deadline>?)",
		sqlRuns:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlWaitsAgain:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSetWindows:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlShiftWindows:  "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlDropEpoch:     "SEARCH main.errand_option USING COVERING INDEX errand_option_epoch (epoch=?)",
		sqlWindowed:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlEndOption:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropOption:    "USING INTEGER PRIMARY KEY (rowid=?)",

		sqlDropCheckpoint: "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropKept:       "USING INTEGER PRIMARY KEY (rowid=?)",

		sqlKept:          "SEARCH main.errand_kept USING INTEGER PRIMARY KEY (rowid=?)",
		sqlAllKept:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlResumeFrom:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlMarkKept:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlMembership:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlHasHead:       "USING COVERING INDEX errand_option_head (group_key=? AND role>?)",
		sqlGroupHeads:    "SEARCH o USING COVERING INDEX errand_option_head (group_key=? AND role>? AND role<?)",
		sqlTally:         "USING COVERING INDEX errand_option_head (group_key=? AND role>? AND role<?)",
		sqlTallyOne:      "USING COVERING INDEX errand_option_head (group_key=? AND role>? AND role<?)",
		sqlPassDead:      "USING INDEX errand_option_dead (group_key=?)",
		sqlHeadKeys:      "USING COVERING INDEX errand_option_head (group_key>? AND group_key<?)",
		sqlNextBlocked:   "USING COVERING INDEX errand_option_blocked (group_key=? AND rowid>?)",
		sqlFirstBlocked:  "USING COVERING INDEX errand_option_blocked (group_key=?)",
		sqlLaneOfJob:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlNextGroup:     "USING COVERING INDEX errand_option_blocked (group_key>? AND group_key<?)",
		sqlSetRole:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSetRoles:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSetGroup:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlMove:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlMoveTo:        "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSkip:          "USING COVERING INDEX errand_option_dead (group_key=?)",
		sqlDeadID:        "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlGroups:        "SEARCH o USING COVERING INDEX errand_option_dead (group_key>? AND group_key<?)",
		sqlHeadOf:        "SEARCH o USING COVERING INDEX errand_option_head (group_key=? AND role>?)",
		sqlBlockedBefore: "USING COVERING INDEX errand_option_blocked (group_key=? AND rowid<?)",
		sqlDeleteTags:    "USING COVERING INDEX errand_tag_job (job=?)",
		sqlDeleteHistory: "USING PRIMARY KEY (job=?)",
		sqlAddHistory:    "USING PRIMARY KEY (job=?)",
		sqlTrimHistory:   "USING PRIMARY KEY (job=? AND n<?)",
		sqlHistory:       "USING PRIMARY KEY (job=?)",
		sqlKey:           "USING PRIMARY KEY (key=?)",
		sqlDropKey:       "USING PRIMARY KEY (key=? AND slot=?)",
		sqlReleaseKey:    "USING PRIMARY KEY (key=?)",
		sqlHolderBefore:  "SEARCH h USING PRIMARY KEY (key=? AND slot=?)",
		sqlNextWindow:    "USING COVERING INDEX errand_unique_until (until>? AND until<?)",
		sqlOverWindows:   "USING COVERING INDEX errand_unique_until (until>? AND until<?)",
		sqlReplace:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlFindLane:      "USING COVERING INDEX sqlite_autoindex_errand_lane_1 (queue=? AND kind=?)",
		sqlEndHold:       "USING PRIMARY KEY (queue=? AND kind=? AND reason=?)",
		sqlSettingsSince: "USING INDEX errand_setting_changed (changed>?)",
		sqlUnsetAt:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSettingsOf:    "USING PRIMARY KEY (queue=? AND kind=?)",
		sqlBucket:        "USING PRIMARY KEY (queue=? AND kind=?)",
		sqlGiveBack:      "USING PRIMARY KEY (queue=? AND kind=?)",
		sqlDropBucket:    "USING PRIMARY KEY (queue=? AND kind=?)",
		sqlLetThrough:    "USING PRIMARY KEY (queue=? AND kind=?)",
		sqlLetNext:       "USING PRIMARY KEY (queue=? AND kind=?)",
		sqlWaitsFor:      "USING PRIMARY KEY (queue=? AND kind=? AND reason=?)",
		sqlLanes:         "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlFindPolicy:    "USING COVERING INDEX sqlite_autoindex_errand_policy_1 (doc=?)",
		sqlPolicy:        "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlRefer:         "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropPolicies:  "USING COVERING INDEX errand_policy_unused (policy<?)",
		sqlLiveJob:       "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		sqlFinishedJob:   "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDeadJob:       "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		sqlLaneCounts:    "SEARCH c USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlLaneCountsOf:  "USING COVERING INDEX sqlite_autoindex_errand_lane_1 (queue=?)",
		sqlLiveOf:        "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		sqlFinishedOf:    "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDeadOf:        "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		sqlFindCause:     "USING COVERING INDEX sqlite_autoindex_errand_cause_1 (lane=? AND reason=? AND hash=?)",
		sqlCountCauses:   "USING COVERING INDEX sqlite_autoindex_errand_cause_1 (lane=?)",
		sqlCountDeaths:   "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropCause:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlLaneNumbers:   "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlSucceeded:     "",
		sqlPayloadSize:   "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlManyWait:      "USING COVERING INDEX errand_job_scheduled",
		sqlLastJob:       "SEARCH main.errand_job",
		sqlLaneUse:       "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlUse:           "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlNumber:        "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlOldestDead:    "SEARCH main.errand_dead USING INDEX errand_dead_ended (ended_at>?)",
		sqlOldestDeadOf:  "SEARCH main.errand_dead USING INDEX errand_dead_lane (lane=? AND ended_at>?)",
		sqlCountDead:     "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlNextReady:     "USING COVERING INDEX errand_job_ready (lane=? AND priority=? AND due_at>?)",
		sqlNextScheduled: "USING INDEX errand_job_scheduled (due_at>?)",
		sqlHeldForever:   "USING PRIMARY KEY (key=? AND slot=?)",
		sqlWaits:         "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlUrgent:        "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		sqlCalm:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlRunNow:        "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDead:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlNextPurge:     "USING COVERING INDEX errand_finished_purge",
		sqlNextOver:      "USING COVERING INDEX errand_message_purge",
		sqlPurgeFinished: "USING COVERING INDEX errand_finished_purge (purge_at<?)",
		sqlJob:           "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlEndedState:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlAnyState:      "SEARCH main.errand_job USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropDead:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlLaneName:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlPlace:         "SEARCH main.errand_job USING INTEGER PRIMARY KEY (rowid=?)",
		sqlNextPriority:  "USING COVERING INDEX errand_job_ready (lane=? AND priority<?)",
		sqlNewest:        "USING COVERING INDEX errand_job_ready (lane=? AND priority=?)",
		sqlHeadsOf:       "USING INDEX errand_job_ready (lane=? AND priority=?)",
		sqlHeadsOfNewest: "USING INDEX errand_job_ready (lane=? AND priority=?)",
		sqlOrderOf:       "USING PRIMARY KEY (queue=? AND kind=?)",
		sqlAheadOldest:   "USING COVERING INDEX errand_job_ready (lane=? AND priority=? AND due_at<?)",
		sqlAheadNewest:   "USING COVERING INDEX errand_job_ready (lane=? AND priority=? AND due_at>?)",

		sqlLastFinished:  "SEARCH main.errand_finished",
		sqlChangeJob:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlChangeDead:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDeadCause:     "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSetCause:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlEditJob:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlEditDead:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlAddEdit:       "USING PRIMARY KEY (job=?)",
		sqlTrimEdits:     "USING PRIMARY KEY (job=? AND n<?)",
		sqlErrorToken:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlEndedFinished: "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlEndedDead:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlNotEnded:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropFinished:  "USING INTEGER PRIMARY KEY (rowid=?)",

		sqlShiftEnd:        "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlShiftFinished:   "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlMessageEnd:      "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlShiftMessages:   "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlEntryEnd:        "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlShiftEntries:    "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlKeyEnd:          "USING COVERING INDEX errand_unique_until (until>? AND until<?)",
		sqlShiftKeys:       "USING INDEX errand_unique_until (until>? AND until<?)",
		sqlShiftLasts:      "USING INTEGER PRIMARY KEY (rowid>?)",
		sqlShift:           "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
		sqlShiftDead:       "USING COVERING INDEX errand_dead_ended (ended_at>?)",
		sqlPlan:            "USING INDEX sqlite_autoindex_errand_schedule_1 (name=?)",
		sqlSetSchedule:     "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlFire:            "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropSchedule:    "USING INDEX sqlite_autoindex_errand_schedule_1 (name=?)",
		sqlDropScheduleJob: "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSchedule:        "SEARCH s USING INDEX sqlite_autoindex_errand_schedule_1 (name=?)",
		sqlSchedules:       "SCAN s USING INDEX sqlite_autoindex_errand_schedule_1",
		sqlOverlaps:        "USING COVERING INDEX errand_origin_live (schedule=?)",
		sqlSetOrigin:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropOrigin:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlLastTick:        "USING PRIMARY KEY (schedule=?)",
		sqlTrimTicks:       "USING PRIMARY KEY (schedule=? AND n<?)",
		sqlDropTicks:       "USING PRIMARY KEY (schedule=?)",
		sqlTicks:           "SEARCH t USING PRIMARY KEY (schedule=?)",

		sqlEntry:          "USING INDEX sqlite_autoindex_errand_entry_1 (class=? AND name=?)",
		sqlFindEntry:      "USING INDEX sqlite_autoindex_errand_entry_1 (class=? AND name=?)",
		sqlEntries:        "USING INDEX sqlite_autoindex_errand_entry_1 (class=? AND name>?)",
		sqlFamily:         "USING INDEX errand_entry_family (family=? AND class=? AND name>?)",
		sqlRevision:       "USING PRIMARY KEY (family=?)",
		sqlSetEntry:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropEntry:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlFindMessage:    "USING INDEX sqlite_autoindex_errand_message_1 (id=?)",
		sqlFindDedup:      "USING INDEX errand_message_dedup (topic=? AND dedup=?)",
		sqlEndDedup:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlSetCursor:      "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlStays:          "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlLastGone:       "USING INDEX sqlite_autoindex_errand_message_1 (id=?)",
		sqlDropMessage:    "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlDropBody:       "USING INTEGER PRIMARY KEY (rowid=?)",
		sqlOver:           "USING COVERING INDEX errand_message_purge (purge_at>? AND purge_at<?)",
		sqlMessage:        "SEARCH m USING INDEX sqlite_autoindex_errand_message_1 (id=?)",
		sqlMessageWith[1]: "SEARCH m USING INDEX sqlite_autoindex_errand_message_1 (id=?)",
		sqlMessageWith[2]: "USING INDEX sqlite_autoindex_errand_entry_1 (class=? AND name=?)",
		sqlMessages:       "SEARCH m USING INDEX errand_message_topic (topic=? AND published_at>?)",
	} {
		plan := explain(t, s, text)
		if !strings.Contains(plan, want) {
			t.Errorf("%s\nplan:\n%s\nwant: %s", text, plan, want)
		}
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "TEMP B-TREE") ||
				strings.HasPrefix(line, "SCAN") && !strings.Contains(line, "USING") && !strings.Contains(line, "CONSTANT ROW") && !strings.Contains(line, "VIRTUAL TABLE") {
				t.Errorf("%s\nplan:\n%s", text, plan)
			}
		}
	}
}

// The oldest ready job of each lane is found by steps from priority to priority.
func TestStats_PassesOverJobs(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for text, wants := range map[string][]string{
		sqlOldest: {
			"SEARCH main.errand_job USING COVERING INDEX errand_job_ready (lane=?)",
			"SEARCH j USING COVERING INDEX errand_job_ready (lane=? AND priority<?)",
			"SEARCH j USING COVERING INDEX errand_job_ready (lane=? AND priority=?)",
			"SEARCH f USING INTEGER PRIMARY KEY (rowid>?)",
		},
		sqlEldest: {
			"SCAN main.errand_job USING COVERING INDEX errand_job_ready",
			"SEARCH c USING INTEGER PRIMARY KEY (rowid=?)",
			"SEARCH j USING COVERING INDEX errand_job_ready (lane=? AND priority<?)",
			"SEARCH j USING COVERING INDEX errand_job_ready (lane>?)",
			"SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
		},
		sqlOldestOf: {
			"SEARCH main.errand_job USING COVERING INDEX errand_job_ready (lane=?)",
			"SEARCH j USING COVERING INDEX errand_job_ready (lane=? AND priority<?)",
			"SEARCH j USING COVERING INDEX errand_job_ready (lane=? AND priority=?)",
		},
		sqlRunning: {"SCAN main.errand_job USING INDEX errand_job_running"},
		sqlFailures: {
			"SEARCH f USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
			"SEARCH e USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
		},
		sqlCauses: {
			"SEARCH main.errand_dead USING COVERING INDEX errand_dead_cause (cause=?)", "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
		},
		sqlDeaths: {"SEARCH main.errand_dead USING COVERING INDEX errand_dead_cause (cause=? AND ended_at>? AND ended_at<?)"},
	} {
		plan := explain(t, s, text)
		for _, want := range wants {
			if !strings.Contains(plan, want) {
				t.Errorf("%s\nplan:\n%s\nwant: %s", text, plan, want)
			}
		}
		if strings.Contains(plan, "SCAN main.errand_dead") || strings.Contains(plan, "SCAN j") || text == sqlDeaths && strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\nplan:\n%s", text, plan)
		}
	}
}

// Whoever counts jobs reads the rows of those that the numbers do not count, and no others of
// their table but those that run.
func TestUncounted_PassOverJobs(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, text := range []string{
		sqlUncounted, sqlRestCounts, sqlLaneNumbers, sqlOldest, sqlSampledOldest, sqlWaiting, sqlCountLive, sqlCounts, sqlJobsByState, sqlClock,
	} {
		plan := strings.ReplaceAll(explain(t, s, text), "main.", "") // views do not name the schema
		if want := "SEARCH errand_job USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)\n"; !strings.Contains(plan, want) {
			t.Errorf("%s\nplan:\n%s\nwant: %s", text, plan, want)
		}
		for line := range strings.Lines(plan) {
			if strings.HasPrefix(line, "SCAN errand_job") && !strings.Contains(line, "errand_job_running") {
				t.Errorf("%s\nplan:\n%s", text, plan)
			}
		}
	}
	if plan, want := explain(t, s, sqlNextJob), "SEARCH main.errand_job USING INTEGER PRIMARY KEY (rowid<?)\n"; !strings.Contains(plan, want) { // for the last row
		t.Errorf("%s\nplan:\n%s\nwant: %s", sqlNextJob, plan, want)
	}
}

// explain returns the query plan, a step to a line.
func explain(t *testing.T, s *Store, text string) string {
	t.Helper()
	var args []any
	for strings.Contains(text, "?"+strconv.Itoa(len(args)+1)) {
		args = append(args, 1)
	}
	if len(args) == 0 {
		args = slices.Repeat([]any{1}, strings.Count(text, "?"))
	}
	rows, err := s.read.Query("EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(step + "\n")
	}
	return plan.String()
}

// The groups that wait are found from one to the next, and their heads among those with
// places, however many members are blocked. The rows of a page are sorted.
func TestGroups_PassesOverMembers(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := explain(t, s, sqlWaitingGroups)
	for line := range strings.Lines(plan) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "SCAN") && line != "SCAN CONSTANT ROW" && line != "SCAN o" && line != "SCAN h" {
			t.Errorf("%s", line)
		}
	}
	for _, want := range []string{
		"SEARCH main.errand_option USING COVERING INDEX errand_option_blocked (group_key>? AND group_key<?)",
		"SEARCH p USING COVERING INDEX errand_option_head (group_key=? AND role>?)",
		"SEARCH a USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)",
	} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan lacks %q:\n%s", want, plan)
		}
	}
	if strings.Count(plan, "SEARCH p") != 1 {
		t.Errorf("heads are looked for more than once:\n%s", plan)
	}
}

// Jobs of which nothing was kept run no statement about what is kept, jobs of no schedule none
// about schedules, and jobs that were not passed on none about where they came from.
func TestKept_CostsOthersNothing(t *testing.T) {
	s := openTemp(t)
	ctx, now := t.Context(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	about := func() (found []string) {
		t.Helper()
		w := s.queue.writer
		if err := w.alone(func() error {
			for text := range w.stmts.texts {
				if strings.Contains(text, "errand_kept") || strings.Contains(text, "errand_origin") || text == sqlTags {
					found = append(found, text)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	var l storage.Leased
	exchange := func(end storage.Finish) {
		t.Helper()
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}, Retention: storage.Retention{Default: time.Minute}}
		if end.Outcome != 0 {
			end.Lease = l.Lease
			x.Finish = []storage.Finish{end}
		}
		res, err := s.Exchange(ctx, now, x)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Leased) > 0 {
			l = res.Leased[0]
		}
	}
	dead := storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}
	for _, end := range []storage.Finish{{Outcome: storage.OutcomeDone}, {Outcome: storage.OutcomeCancelled}, dead} {
		if _, err := s.Enqueue(ctx, now, []storage.NewJob{{Queue: "q", Kind: "k", Group: "g", Tags: []string{"red"}, StartWithin: time.Minute}}); err != nil {
			t.Fatal(err)
		}
		exchange(storage.Finish{})
		exchange(storage.Finish{Outcome: storage.OutcomeRetry, Failure: &storage.NewFailure{Error: "no"}})
		exchange(end)
	}
	if step, err := s.Redrive(ctx, now, storage.Selection{FromStart: true}, ""); err != nil || step.N != 1 {
		t.Fatalf("redriven %d, %v", step.N, err)
	}
	exchange(storage.Finish{})
	exchange(storage.Finish{Outcome: storage.OutcomeRetry, DueAt: now.Add(time.Second)})
	if step, err := s.Change(ctx, now, storage.Selection{IDs: []storage.ID{l.ID}}, storage.Edit{Args: []byte("other")}); err != nil || step.N != 1 {
		t.Fatalf("changed %+v, %v", step, err)
	}
	now = now.Add(time.Second)
	if _, _, err := s.PurgeFinished(ctx, now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if found := about(); len(found) > 0 {
		t.Errorf("without checkpoints these ran: %q", found)
	}
	exchange(storage.Finish{})
	if r, err := s.Checkpoint(ctx, storage.Checkpoint{Lease: l.Lease, Data: []byte("x")}); err != nil || r != storage.Applied {
		t.Fatalf("Checkpoint returned %d, %v", r, err)
	}
	if len(about()) == 0 {
		t.Error("a checkpoint ran none of them: this test sees nothing")
	}
	exchange(storage.Finish{Outcome: storage.OutcomeDone})
	if _, err := s.Enqueue(ctx, now, []storage.NewJob{{Queue: "q", Kind: "k", Tags: storage.FromTags(storage.Origin{Device: "pi", ID: "17"})}}); err != nil {
		t.Fatal(err)
	}
	if exchange(storage.Finish{}); l.Origin.ID != "17" || !slices.Contains(about(), sqlTags) {
		t.Errorf("a job from %v ran only %q", l.Origin, about())
	}
}
