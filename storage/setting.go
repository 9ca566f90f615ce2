package storage

import (
	"cmp"
	"context"
)

// Settler is the part of a [Store] that keeps settings, which all processes obey, also
// those that only enqueue.
type Settler interface {
	// Configure sets the settings of a lane that s names, and keeps its others. One that
	// is set to zero is not set any more. The lane need not have any job yet. An empty
	// Kind stands for all kinds of the queue, an empty Queue for the kind in all queues,
	// both for the whole database. Each call of any instance that begins after Configure
	// has returned obeys the settings. A Store keeps settings that it does not know.
	Configure(ctx context.Context, lane Lane, s Settings) error

	// Settings returns the lanes with settings, sorted by queue and kind, and what is set
	// for each.
	Settings(ctx context.Context) ([]LaneSettings, error)
}

// Setting is the name of a setting.
type Setting string

// Settings are settings by name. A setting that is missing or zero is not set.
type Settings map[Setting]int64

// LaneSettings are the settings of a lane.
type LaneSettings struct {
	Lane     Lane
	Settings Settings
}

// SettingOf returns what all say of a setting for a lane: see [SettingRetention]. It is zero if
// nothing is set.
func SettingOf(all []LaneSettings, lane Lane, name Setting) int64 {
	of := func(l Lane) int64 {
		for i := range all {
			if all[i].Lane == l {
				return all[i].Settings[name]
			}
		}
		return 0
	}
	if lane.Queue == BulkQueue {
		return cmp.Or(of(lane), of(Lane{Queue: lane.Queue}))
	}
	return cmp.Or(of(lane), of(Lane{Kind: lane.Kind}), of(Lane{Queue: lane.Queue}), of(Lane{}))
}

// The settings.
const (
	// SettingMaxJobs is how many jobs may wait, and SettingMaxBytes how many bytes they
	// may count for. They are of a queue or of the whole database. See [WhenFull].
	SettingMaxJobs  Setting = "max_jobs"
	SettingMaxBytes Setting = "max_bytes"
	// SettingWhenFull is a [WhenFull], of a queue or of the whole database.
	SettingWhenFull Setting = "when_full"
	// SettingMinFree is how many bytes of the file system must be free, and
	// SettingMinFreePriority the highest priority of the jobs that are refused otherwise.
	// They are of a queue or of the whole database. See [WhenFull].
	SettingMinFree         Setting = "min_free"
	SettingMinFreePriority Setting = "min_free_priority"
	// SettingMaxDead is how many dead letters there may be, and SettingWhenDeadFull a
	// [WhenDeadFull]. They are of a kind in a queue, of a queue or of the whole database.
	SettingMaxDead      Setting = "max_dead"
	SettingWhenDeadFull Setting = "when_dead_full"
	// SettingRetention is how long finished jobs are kept, in microseconds; below zero
	// they are deleted at once. The first of these that is set counts: that of the kind
	// in the queue, of the kind, of the queue, of the whole database, and last the
	// [Retention] of a call.
	SettingRetention Setting = "retention"
	// SettingGroupLimit is how many members of a group may be ready or running at a time,
	// 1 if it is not set, and SettingDeadHead a [DeadHead]. They are of a queue. See
	// [Grouper].
	SettingGroupLimit Setting = "group_limit"
	SettingDeadHead   Setting = "dead_head"
	// SettingOrder is an [Order], and SettingAging how much waiting makes up for a step of
	// priority, in microseconds. They are of a queue.
	SettingOrder Setting = "order"
	SettingAging Setting = "aging"
	// SettingStartWithin and SettingFinishWithin are the StartWithin and the FinishWithin
	// of new jobs that have none of their own, in microseconds, and SettingOnExpire is
	// ExpireFinished or ExpireDead, the OnExpire of those that have none. Which one
	// counts is as with SettingRetention.
	SettingStartWithin  Setting = "start_within"
	SettingFinishWithin Setting = "finish_within"
	SettingOnExpire     Setting = "on_expire"
)

// The values of SettingOnExpire.
const (
	ExpireFinished int64 = 1 + iota
	ExpireDead
)
