package conformance

import (
	"context"
	"testing"

	"github.com/keepwatch/keepwatch/conform"
	"github.com/keepwatch/keepwatch/test/peer"
)

// The judge of servers accepts the server whose rules it judges, also when that is killed and restarted
// between the writes.
func TestConform(t *testing.T) {
	server := peer.Kubernetes(t)
	report, err := conform.Run(t.Context(), server.Config(), conform.Options{
		Watchers: 60, Writes: 600, Progress: func(line string) { t.Log(line) },
		Disturb: func(ctx context.Context) error {
			server.Kill()
			return server.Restart(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Verdict != conform.Kept {
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
}
