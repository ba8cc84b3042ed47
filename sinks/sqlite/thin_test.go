package sqlite_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestThinning compares a history that is thinned out with one that retains all, in steps of a few rows and of whole
// windows.
func TestThinning(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	steps := 500
	if testing.Short() {
		steps = 100
	}
	for name, row := range map[string]struct{ rows, tiers int }{
		"few rows": {7, 1}, "whole windows": {1000, 1}, "few rows, two tiers": {7, 2}, "whole windows, two tiers": {1000, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, tiers := row.rows, row.tiers
			test := sinktest.Thinning{Seed: seed, Steps: steps, Rows: rows, Tiers: tiers}
			deleted := 0
			create := func(file string, options sqlite.Options) (*sqlite.Sink, *sqlite.History, string) {
				path := filepath.Join(t.TempDir(), file)
				s := sqlite.New(path, options)
				s.SetSweep(rows)
				if file == "thinned.db" && rows < 10 {
					s.SetCompress(time.Minute, 0) // what is thinned out is compressed then
				}
				open(t, s)
				past, err := sqlite.OpenHistory(t.Context(), path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { past.Close() })
				s.Close()
				return s, past, path
			}
			thinned, past, path := create("thinned.db", sqlite.Options{Thin: sinktest.Thinned[:tiers], Expired: func(e sink.Expiry) {
				if e.Reason != sink.ExpiredByThinning || e.States == 0 || e.Until.IsZero() {
					t.Errorf("%+v", e)
				}
				deleted += e.States
			}})
			complete, all, _ := create("complete.db", sqlite.Options{})
			test.Sink, test.Past, test.Complete, test.CompletePast = thinned, past, complete, all
			test.Deleted = func() int { return deleted }
			db := read(t, path)
			test.Refuse = func(change, table string) func() { return refuse(t, db, change, table) }
			sinktest.TestThinning(t, test)
		})
	}
}
