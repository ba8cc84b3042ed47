package postgres_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// testMaxSize bounds the states of a schema, also after another start, and those of a format that had no sizes.
func testMaxSize(t *testing.T, server *pgtest.Server) {
	const maxSize = 1 << 19
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	url := server.URL("max_size")
	reported := sinktest.NewSizeReport(t)
	s := postgres.New(url, postgres.Options{MaxSize: maxSize, Expired: reported.Expired})
	t.Cleanup(func() { s.Close() })
	sinktest.TestMaxSize(t, seed, s, reported, func(step int) {
		size, err := strconv.Atoi(server.SQL(`SELECT sum(bytes) FROM max_size.resources`))
		if err != nil || size > maxSize {
			t.Fatalf("step %d: the states have %d bytes, %v", step, size, err)
		}
		if deleted := reported.States(); deleted > 0 && size < maxSize-sinktest.LargestState-100 {
			t.Errorf("step %d: more is deleted than is too much: %d bytes are left", step, size)
		}
		switch step {
		case 20, 40:
			s.Close()
			open(t, s)
		case 30:
			s.Close()
			server.SQL(`UPDATE max_size.states SET bytes = NULL WHERE id % 2 = 0`)
			open(t, s)
			server.SQL(`UPDATE max_size.states SET bytes = octet_length(object::text) WHERE bytes IS NULL`)
		}
	}, snapshotOf(t, url))

	small := server.URL("max_size_small")
	var all []sink.Expiry
	s = postgres.New(small, postgres.Options{MaxSize: 200_000, Expired: func(e sink.Expiry) { all = append(all, e) }})
	sinktest.TestMaxSizeTooSmall(t, s, func() []sink.Expiry { return all }, snapshotOf(t, small))
	if got := server.SQL(`SELECT bytes - octet_length(object::text) FROM max_size_small.resources`); got != "-1" {
		t.Errorf("the size of a state is wrong by %s", got) // jsonb has a space behind the colon
	}
}
