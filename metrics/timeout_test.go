package metrics

import "github.com/errandq/errand/internal/kit"

func init() { withTimeout = kit.TimeoutInBubbles() }
