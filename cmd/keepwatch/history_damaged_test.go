package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// storedMap is the state of a ConfigMap in a history.
type storedMap keepwatch.Revision

func (o storedMap) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "default", Name: "one"} }
func (o storedMap) UID() keepwatch.UID           { return "uid" }
func (o storedMap) Revision() keepwatch.Revision { return keepwatch.Revision(o) }
func (o storedMap) Metadata() []byte             { return nil }
func (o storedMap) JSON() []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","namespace":"default",
		"creationTimestamp":"2026-11-28T10:00:00Z","resourceVersion":"%d"},"data":{"text":%q}}`, o, strings.Repeat("x", 900))
}

// storeMaps stores a history with many states of a ConfigMap.
func storeMaps(t *testing.T, path string) {
	t.Helper()
	s := sqlite.New(path, sqlite.Options{})
	if _, err := s.Open(t.Context(), []sink.Stream{{
		ID: stream.Identity{Resource: "configmaps", Cluster: stream.Cluster{UID: "test"}},
		Type: &sink.Type{Version: "v1", Kind: "ConfigMap", Singular: "configmap", ShortNames: []string{"cm"},
			Namespaced: true},
	}, {
		ID:   stream.Identity{Resource: "events", Cluster: stream.Cluster{UID: "test"}},
		Type: &sink.Type{Version: "v1", Kind: "Event", Namespaced: true},
	}}); err != nil {
		t.Fatal(err)
	}
	p := stream.Piece{Cursor: 100, Count: 1, Position: []byte(`{}`)}
	for at := keepwatch.Revision(1); at <= 100; at++ {
		kind := keepwatch.Modified
		if at == 1 {
			kind = keepwatch.Added
		}
		p.Messages = append(p.Messages, stream.Event{Type: kind, Revision: at, Object: storedMap(at)})
		if at == 1 {
			p.Messages = append(p.Messages, stream.Synced{Revision: 1, Count: 1})
		}
	}
	events := stream.Piece{Messages: []stream.Message{stream.Synced{Revision: 100}}, Cursor: 100, Position: []byte(`{}`)}
	if err := s.Write(t.Context(), sink.Batch{Time: time.Now().UTC().Add(-time.Minute).Truncate(time.Millisecond),
		Pieces: []sink.Piece{{Piece: p, After: sink.Progress{}.After(p)},
			{Stream: 1, Piece: events, After: sink.Progress{}.After(events)}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHistoryDamaged reads files that are damaged, foreign, newer or half there. Each command ends with one sentence.
func TestHistoryDamaged(t *testing.T) {
	dir := t.TempDir()
	sound := filepath.Join(dir, "sound.db")
	storeMaps(t, sound)
	text, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{
		"log": "history log cm/one -n default", "diff": "history diff cm -A --at revision/100",
		"blame": "history blame cm/one -n default", "events": "history events cm/one -n default",
		"restore": "history restore cm/one -n default --at now --dry-run",
		"serve":   "serve --listen 127.0.0.1:0 --kubeconfig-out " + filepath.Join(dir, "kubeconfig"),
		"fork":    "serve --writable --listen 127.0.0.1:0 --kubeconfig-out " + filepath.Join(dir, "kubeconfig"),
	}
	for name, row := range map[string]struct {
		change string // of the tables
		length int    // of the file, if it is cut off
		want   string
	}{
		"empty":           {length: 0, want: "it has no tables of keepwatch sync"},
		"a header":        {length: 100, want: "database disk image is malformed"},
		"half":            {length: len(text) / 2, want: "database disk image is malformed"},
		"newer":           {change: `UPDATE keepwatch SET format = 99`, want: "use a newer keepwatch"},
		"no format":       {change: `DELETE FROM keepwatch`, want: "another program has changed the tables"},
		"negative format": {change: `UPDATE keepwatch SET format = -1`, want: "another program has changed them"},
		"foreign":         {change: `DROP TABLE keepwatch`, want: "it has no tables of keepwatch sync"},
		"no cursors":      {change: `DROP TABLE cursors`, want: "no such table: cursors"},
		"no gaps":         {change: `DROP TABLE gaps`, want: "no such table: gaps"},
		"no types":        {change: `DROP TABLE types`, want: "no such table: types"},
		"no states":       {change: `DROP TABLE states`, want: "no such table: "},
		"an identity":     {change: `UPDATE cursors SET identity = '{'`, want: "the table cursors: "},
		"a type":          {change: `UPDATE types SET type = '{'`, want: "the table types: "},
		"a time":          {change: `UPDATE cursors SET written = 'noon'`, want: "the table cursors: parsing time"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".db")
		content := text
		if row.change == "" {
			content = text[:row.length]
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if row.change != "" {
			db := openSQLite(t, path)
			if _, err := db.Exec(row.change); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			db.Close()
		}
		for command, args := range commands {
			from := " --from sqlite:"
			if command == "serve" || command == "fork" {
				from = " --history sqlite:"
			}
			code, stdout, stderr := execute(t, strings.Fields(args+from+path)...)
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, path) ||
				!strings.Contains(stderr, row.want) {
				t.Errorf("%s, %s: exit %d, %s%s, want %s", name, command, code, stdout, stderr, row.want)
			}
		}
	}
}
