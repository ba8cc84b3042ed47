package history

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestLogOfAQuietType takes a revision of another type for what was then, although the type had no change since long
// before: a time is before a revision only if it is before the last change up to it of all types.
func TestLogOfAQuietType(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	var streams []sink.Stream
	for _, kind := range []string{"Pod", "Secret"} {
		streams = append(streams, sink.Stream{Type: &sink.Type{Version: "v1", Kind: kind, Namespaced: true},
			ID: stream.Identity{Cluster: stream.Cluster{Server: "s"}, Resource: strings.ToLower(kind) + "s"}})
	}
	if _, err := s.Open(t.Context(), streams); err != nil {
		t.Fatal(err)
	}
	const pods, secrets = 0, 1
	progress, counts := make([]sink.Progress, len(streams)), make([]uint64, len(streams))
	begin := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Hour)
	write := func(minute, of int, cursor keepwatch.Revision, m stream.Message) {
		p := stream.Piece{Messages: []stream.Message{m}, Cursor: cursor, Count: counts[of], Position: []byte(`{}`)}
		after := progress[of].After(p)
		err := s.Write(t.Context(), sink.Batch{Time: begin.Add(time.Duration(minute) * time.Minute),
			Pieces: []sink.Piece{{Stream: of, Piece: p, Before: progress[of], After: after}}})
		if err != nil {
			t.Fatal(err)
		}
		progress[of] = after
	}
	change := func(minute, of int, revision keepwatch.Revision) {
		object := pod{keepwatch.Key{Namespace: "default", Name: "at-" + revision.String()}, revision}
		counts[of]++
		write(minute, of, revision, stream.Event{Type: keepwatch.Added, Revision: revision, Object: object})
	}
	write(0, pods, 5, stream.Synced{Revision: 5})
	write(0, secrets, 5, stream.Synced{Revision: 5})
	change(1, pods, 6)
	for i, revision := range []keepwatch.Revision{11, 12, 13} {
		change(10+i, secrets, revision)
	}
	change(20, pods, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	at := func(minute int) string {
		return begin.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339Nano)
	}
	for name, row := range map[string]struct {
		args  string
		shown string // the objects, or the error
	}{
		"quiet":                  {"pods --since revision/11 --until " + at(12), ""},
		"busy":                   {"secrets --since revision/11 --until " + at(12), "at-12 at-13"},
		"all":                    {"-A --since revision/11 --until " + at(12), "at-12 at-13"},
		"quiet, before":          {"pods --since revision/12 --until " + at(10), "is before"},
		"busy, before":           {"secrets --since revision/12 --until " + at(10), "is before"},
		"quiet, from a time":     {"pods --since " + at(11) + " --until revision/13", ""},
		"quiet, to a later one":  {"pods --since revision/11 --until " + at(30), "at-20"},
		"quiet, of two":          {"pods --since revision/11 --until revision/12", ""},
		"quiet, of two, before":  {"pods --since revision/12 --until revision/11", "is before"},
		"quiet, after the end":   {"pods --since revision/99 --until " + at(30), ""},
		"quiet, before the last": {"pods --since revision/99 --until " + at(19), "is before"},
	} {
		var out bytes.Buffer
		cmd := NewCommand()
		cmd.SetArgs(append([]string{"log", "--from", "sqlite:" + path}, strings.Fields(row.args)...))
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if row.shown == "is before" {
			if err == nil || !strings.Contains(err.Error(), row.shown) {
				t.Errorf("%s: %v, %s", name, err, out.String())
			}
			continue
		}
		var shown []string
		for _, word := range strings.Fields(out.String()) {
			if _, object, ok := strings.Cut(word, "default/"); ok {
				shown = append(shown, object)
			}
		}
		if got := strings.Join(shown, " "); err != nil || got != row.shown {
			t.Errorf("%s: %v, %s, want %s", name, err, got, row.shown)
		}
	}
}
