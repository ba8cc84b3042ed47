package sqlite_test

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var hoursFlag = flag.Float64("sinks.hours", 0, "the virtual hours that TestHours stores; 0 is a half with -short, and 4 without")

// TestHours replays hours of a history of which the first part is thinned out.
func TestHours(t *testing.T) {
	seed, hours, replays := *seedFlag, *hoursFlag, 4
	if seed == 0 {
		seed = rand.Uint64()
	}
	if hours == 0 {
		if hours = 4; testing.Short() {
			hours, replays = 0.5, 2
		}
	}
	t.Logf("-sinks.seed %d -sinks.hours %g", seed, hours)
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		length := time.Duration(hours * float64(time.Hour))
		deleted := 0
		s := sqlite.New(path, sqlite.Options{Thin: []sink.Thinning{{Age: length / 2, Interval: length / 6}},
			Expired: func(e sink.Expiry) { deleted += e.States }})
		past := func() history.Database {
			opened, err := sqlite.OpenHistory(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return opened
		}
		sinktest.TestHours(t, sinktest.Hours{Seed: seed, For: length, Replays: replays, Sink: s, Past: past})
		if deleted == 0 {
			t.Error("nothing was thinned out")
		}
	})
}
