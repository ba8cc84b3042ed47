package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink/postgres"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestFailover kills the server and promotes its standby, which lacks the last transactions: the rows and the cursor of each are lost
// together, so they are delivered once more. The address names both servers.
func TestFailover(t *testing.T) {
	primary := pgtest.Start(t)
	standby := primary.Standby()
	address := strings.Replace(primary.URL("world"), primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write"
	s := postgres.New(address, postgres.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A standby that is detached has the schema by then.
	const cursors = `SELECT string_agg(concat_ws(' ', resource, epoch, cursor, objects), ',' ORDER BY resource) FROM world.cursors`
	for standby.SQL(`SELECT to_regclass('world.cursors')`) == "" {
		if t.Context().Err() != nil {
			t.Fatal("the standby does not follow")
		}
	}
	detached, failovers, lost := false, 0, 0
	failOver := func() {
		if detached = !detached; detached {
			standby.Detach()
			return // the next time it is behind
		}
		before := primary.SQL(cursors)
		primary.Kill()
		standby.Promote()
		primary, standby = standby, primary
		failovers++
		if primary.SQL(cursors) != before {
			lost++
		}
		standby.Follow(primary)
	}
	report, err := sinktest.Run(t.Context(), sinktest.Config{
		// What was committed may be committed again, and a cut be lost before it is compared.
		Sink: s, Tables: sinktest.Tables{DB: read(t, address)}, Repeats: true, CurrentOnly: true,
		Seed: 1, Steps: 80, ReplacesNUL: true, Patience: 3 * time.Minute, Disturb: failOver,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("%d cuts, %d gaps, %d commits failed, %d rewinds; %d failovers, %d of which lost transactions", report.Cuts, report.Gaps, report.Failed, report.Epochs, failovers, lost)
	if failovers == 0 || lost == 0 {
		t.Error("too little has happened")
	}
}
