package operator

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

// ElectedFor is Elected with a lease of a duration that suits a test.
func ElectedFor(ctx context.Context, cfg *rest.Config, lease Lease, d time.Duration, run func(context.Context) error) error {
	return elected(ctx, cfg, lease, electionTimes{d, d * 2 / 3, d / 10}, run)
}
