package postgres_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

const (
	cursors = `SELECT string_agg(concat_ws(' ', resource, epoch, cursor, objects), ',' ORDER BY resource) FROM world.cursors`
	epochs  = `SELECT string_agg(concat_ws(' ', resource, epoch), ',' ORDER BY resource) FROM world.cursors`
)

// TestFailover kills the server and promotes its standby, which lacks the last transactions: the rows and the cursor of
// each are lost together, so they are delivered once more, although no change follows. The address names both servers.
func TestFailover(t *testing.T) {
	t.Parallel() // it mostly waits
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	primary := pgtest.Start(t)
	address := primary.URL("world")
	s := postgres.New(address, postgres.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	standby := primary.Standby() // has the tables
	standby.Detach()
	address = strings.Replace(address, primary.Addr(), primary.Addr()+","+standby.Addr(), 1) +
		"&target_session_attrs=read-write"
	failovers := 0
	failOver := func() (lost bool) {
		switch had := standby.SQL(cursors); {
		case standby.SQL(epochs) != primary.SQL(epochs):
			// The source was restored since. With a cursor of before, nobody can notice that once the source has passed it.
			standby.Kill()
		case primary.SQL(cursors) == had:
			return false // nothing would be lost
		default:
			primary.Kill()
			standby.Promote()
			primary, standby = standby, primary
			failovers++
			lost = true
		}
		standby.Follow(primary)
		standby.Detach()
		return lost
	}
	report, err := sinktest.Run(t.Context(), sinktest.Config{
		Sink: postgres.New(address, postgres.Options{}), Tables: sinktest.Tables{DB: read(t, address)}, Repeats: true,
		CurrentOnly: true,
		Seed:        seed, Steps: *stepsFlag, ReplacesNUL: true, Patience: 3 * time.Minute, FailOver: failOver,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds; %d failovers", seed, report.Cuts, report.Gaps,
		report.Failed, report.Epochs, failovers)
	if failovers == 0 {
		t.Error("too little has happened")
	}
}
