package postgres_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// testThinning compares a history that is thinned out with one that retains all, in steps of a few rows and of whole
// windows.
func testThinning(t *testing.T, server *pgtest.Server) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	for name, row := range map[string]struct{ rows, tiers int }{"few": {7, 1}, "many": {1000, 2}} {
		t.Run(name, func(t *testing.T) {
			rows, tiers := row.rows, row.tiers
			test := sinktest.Thinning{Seed: seed, Steps: 150, Rows: rows, Tiers: tiers}
			deleted := 0
			create := func(schema string, options postgres.Options) (*postgres.Sink, *postgres.History) {
				url := server.URL(schema)
				s := postgres.New(url, options)
				s.SetSweep(rows)
				if schema == "thinned_few" {
					s.SetGroup(time.Minute, 2, 0) // what is thinned out is in groups then
				}
				open(t, s)
				s.Close()
				past, err := postgres.OpenHistory(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { past.Close() })
				return s, past
			}
			schema := "thinned_" + name
			thinned, past := create(schema, postgres.Options{Thin: sinktest.Thinned[:tiers], Expired: func(e sink.Expiry) {
				if e.Reason != sink.ExpiredByThinning || e.States == 0 || e.Until.IsZero() {
					t.Errorf("%+v", e)
				}
				deleted += e.States
			}})
			complete, all := create("complete_"+name, postgres.Options{})
			test.Sink, test.Past, test.Complete, test.CompletePast = thinned, past, complete, all
			test.Deleted = func() int { return deleted }
			test.Refuse = refuser(server, schema)
			sinktest.TestThinning(t, test)
			checkGroups(t, server, schema)
			if got := server.SQL(strings.ReplaceAll(`SELECT coalesce(max(id), 0) > 0, count(*) FILTER (WHERE
				2 * (SELECT count(*) FROM SCHEMA.states WHERE group_id = g.id) < members) FROM SCHEMA.groups g`, "SCHEMA",
				schema)); schema == "thinned_few" && got != "t|0" {
				t.Errorf("%s: groups were made, groups of which less than half is left: %s", schema, got)
			}
		})
	}
}
