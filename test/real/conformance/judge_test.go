package conformance

import (
	"context"
	"testing"

	"github.com/keepwatch/keepwatch/conform"
	"github.com/keepwatch/keepwatch/test/peer"
)

// The judge of servers accepts the server whose rules it judges, also when that is killed and restarted
// between the writes.
func TestConform(t *testing.T) { judge(t, peer.Kubernetes(t), nil) }

// TestConformLatest judges keepwatch-apiserver, which is the newest Kubernetes with Keepwatch's reads or
// with its own.
func TestConformLatest(t *testing.T) {
	for _, reads := range []string{"keepwatch", "upstream"} {
		t.Run(reads, func(t *testing.T) {
			judge(t, peer.KeepwatchAPIServerOn(t, peer.StartEtcd(t), "--reads="+reads), nil)
		})
	}
}

// judge fails the test if the server does not keep a rule, except the known ones: ids of rules that it is
// known to break, with the finding.
func judge(t *testing.T, server *peer.Server, known map[string]string) {
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
		finding, isKnown := known[one.Rule.ID]
		switch {
		case isKnown && one.Verdict == conform.Broken:
			t.Logf("%s: %s", one.Rule.ID, finding)
		case isKnown || one.Verdict != conform.Kept:
			t.Errorf("%s is %v: %v", one.Rule.ID, one.Verdict, one.Facts)
		}
	}
}
