package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

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
			server.SQL(fmt.Sprintf(
				`CREATE FUNCTION %s.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$`, schema))
			test.Refuse = func(change, table string) func() {
				server.SQL(fmt.Sprintf(`CREATE TRIGGER refused BEFORE %s ON %[3]s.%[2]s EXECUTE FUNCTION %[3]s.refuse()`, change,
					table, schema))
				return func() { server.SQL(fmt.Sprintf(`DROP TRIGGER refused ON %s.%s`, schema, table)) }
			}
			sinktest.TestThinning(t, test)
		})
	}
}
