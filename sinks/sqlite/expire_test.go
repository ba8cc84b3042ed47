package sqlite_test

import (
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// size returns the bytes of the pages of a file that are in use, and of the file.
func size(t *testing.T, db *sql.DB) (used, file int64) {
	t.Helper()
	var pages, free, page int64
	for pragma, to := range map[string]*int64{"page_count": &pages, "freelist_count": &free, "page_size": &page} {
		if err := db.QueryRow("PRAGMA " + pragma).Scan(to); err != nil {
			t.Fatal(err)
		}
	}
	return (pages - free) * page, pages * page
}

// TestMaxSize changes random objects. The file stays below its size, the states that ended first are deleted, and each
// state that the history claims to have is there.
func TestMaxSize(t *testing.T) { testMaxSize(t, func(*sqlite.Sink) {}) }

// TestMaxSizeCompressed is TestMaxSize with states that are compressed as soon as they have ended.
func TestMaxSizeCompressed(t *testing.T) {
	testMaxSize(t, func(s *sqlite.Sink) { s.SetCompress(0, 0) })
}

func testMaxSize(t *testing.T, set func(*sqlite.Sink)) {
	t.Helper()
	const maxSize = 1 << 19
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	path := filepath.Join(t.TempDir(), "state.db")
	reported := sinktest.NewSizeReport(t)
	s := sqlite.New(path, sqlite.Options{MaxSize: maxSize, Expired: reported.Expired})
	set(s)
	t.Cleanup(func() { s.Close() })
	other := read(t, path)
	sinktest.TestMaxSize(t, seed, s, reported, func(step int) {
		if used, file := size(t, other); used > maxSize || file > maxSize+12*4*sinktest.LargestState {
			t.Fatalf("step %d: %d bytes are in use, and the file has %d", step, used, file)
		}
	}, func(read func(sink.Snapshot) error) { snapshot(t, path, read) })
}

// TestMaxSizeTooSmall checks that current states are never deleted, and that the excess is reported, and its end.
func TestMaxSizeTooSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var reported []sink.Expiry
	expired := func(e sink.Expiry) { reported = append(reported, e) }
	s := sqlite.New(path, sqlite.Options{MaxSize: 200_000, Expired: expired})
	sinktest.TestMaxSizeTooSmall(t, s, func() []sink.Expiry { return reported },
		func(read func(sink.Snapshot) error) { snapshot(t, path, read) })
}
