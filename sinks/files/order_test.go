package files

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestLinesBeforeTheManifest fails to write the lines of a batch, as a kill at that moment does: the manifest does not
// name them, and the next process continues.
func TestLinesBeforeTheManifest(t *testing.T) {
	dir := t.TempDir()
	streams := []sink.Stream{{ID: stream.Identity{Resource: "pods"}}}
	open := func() *Directory {
		t.Helper()
		d := New(dir, Options{})
		if err := d.Open(t.Context(), streams, sink.Delivered{State: "s", Progress: make([]sink.Progress, 1)}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	batch := func(at keepwatch.Revision) sink.Batch {
		p := stream.Piece{Messages: []stream.Message{stream.Synced{Revision: at}}, Cursor: at}
		return sink.Batch{Time: time.Now(), Pieces: []sink.Piece{{Piece: p, After: sink.Progress{}.After(p)}}}
	}
	stored := func() (bytes int64, cursor keepwatch.Revision) {
		t.Helper()
		m, err := readManifest(dir)
		if err != nil {
			t.Fatal(err)
		}
		return m.current().Bytes, m.stream(streams[0].ID).Cursor
	}
	d := open()
	if err := d.Write(t.Context(), batch(5)); err != nil {
		t.Fatal(err)
	}
	before, _ := stored()
	d.out.Close()
	if err := d.Write(t.Context(), batch(6)); err == nil {
		t.Fatal("written to a file that is closed")
	}
	if bytes, cursor := stored(); bytes != before || cursor != 5 {
		t.Errorf("the manifest has %d bytes up to revision %d, and %d were written", bytes, cursor, before)
	}
	d.Close()
	if err := open().Write(t.Context(), batch(6)); err != nil {
		t.Fatal(err)
	}
	if bytes, cursor := stored(); bytes != 2*before || cursor != 6 {
		t.Errorf("in the end %d bytes up to revision %d", bytes, cursor)
	}
}
