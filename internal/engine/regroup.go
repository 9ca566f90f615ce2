package engine

import (
	"context"

	"github.com/errandq/errand/storage"
)

// Regroup has settings take effect that were set for the groups of a queue, if there are
// such among set, in as many steps as it takes.
func Regroup(ctx context.Context, s storage.Grouper, queue string, set storage.Settings) error {
	_, limit := set[storage.SettingGroupLimit]
	if _, dead := set[storage.SettingDeadHead]; !limit && !dead {
		return nil
	}
	for after := ""; ; {
		next, err := s.Regroup(ctx, queue, after)
		if err != nil || next == "" {
			return err
		}
		after = next
	}
}
