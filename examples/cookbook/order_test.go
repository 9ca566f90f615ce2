package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// The readings that were taken last are uploaded first, and a mail that has waited for an
// hour goes before one of a priority that is one higher.
func Example_settingsOrder() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()

	check(q.Configure(ctx, errand.Lane{Queue: "readings"}, errand.Settings{Order: new(errand.Newest)}))
	check(q.Configure(ctx, errand.Lane{Queue: "mail"}, errand.Settings{Aging: new(time.Hour)}))
	for _, s := range must(q.Settings(ctx)) {
		if s.Order != nil {
			fmt.Println(s.Queue, *s.Order)
		}
		if s.Aging != nil {
			fmt.Println(s.Queue, *s.Aging)
		}
	}
	// Output:
	// mail 1h0m0s
	// readings newest
}
