package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// This example opens a new file. Package stream/transfer does that, and writes to it.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s := sqlite.New(filepath.Join(dir, "state.db"), sqlite.Options{})
	stored, err := s.Open(context.Background(), []sink.Stream{{ID: stream.Identity{Resource: "pods"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	fmt.Println(stored[0].Entries.Len(), "pods up to revision", stored[0].Progress.Cursor)
	// Output: 0 pods up to revision 0
}
