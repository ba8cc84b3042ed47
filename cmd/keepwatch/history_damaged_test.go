package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
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

// storeMaps stores a history with many states of a ConfigMap, from revision 2 to 100, and calls open before the sink is
// closed.
func storeMaps(t *testing.T, s sink.Sink, open func()) {
	t.Helper()
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
	const first = 2
	for at := keepwatch.Revision(first); at <= 100; at++ {
		kind := keepwatch.Modified
		if at == first {
			kind = keepwatch.Added
		}
		p.Messages = append(p.Messages, stream.Event{Type: kind, Revision: at, Object: storedMap(at)})
		if at == first {
			p.Messages = append(p.Messages, stream.Synced{Revision: first, Count: 1})
		}
	}
	events := stream.Piece{Messages: []stream.Message{stream.Synced{Revision: 100}}, Cursor: 100, Position: []byte(`{}`)}
	if err := s.Write(t.Context(), sink.Batch{Time: time.Now().UTC().Add(-time.Minute).Truncate(time.Millisecond),
		Pieces: []sink.Piece{{Piece: p, After: sink.Progress{}.After(p)},
			{Stream: 1, Piece: events, After: sink.Progress{}.After(events)}}}); err != nil {
		t.Fatal(err)
	}
	open()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// damagedCommands are all commands that read a history, without its address.
func damagedCommands(dir string) map[string]string {
	kubeconfig := " --listen 127.0.0.1:0 --kubeconfig-out " + filepath.Join(dir, "kubeconfig")
	return map[string]string{
		"log": "history log cm/one -n default --from", "diff": "history diff cm -A --at revision/100 --from",
		"log of all types": "history log -A --since revision/2 --from",
		"blame":            "history blame cm/one -n default --from", "events": "history events cm/one -n default --from",
		"restore": "history restore cm/one -n default --at now --dry-run --from",
		"serve":   "serve" + kubeconfig + " --history",
		"fork":    "serve --writable" + kubeconfig + " --history",
	}
}

// endsWithASentence runs a command on a damaged history.
func endsWithASentence(t *testing.T, what, command, database, shown, want string) {
	t.Helper()
	code, stdout, stderr := execute(t, append(strings.Fields(command), database)...)
	if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, shown) ||
		!strings.Contains(stderr, want) {
		t.Errorf("%s: exit %d, %s%s, want %s", what, code, stdout, stderr, want)
	}
}

// TestHistoryDamaged reads files that are damaged, foreign, newer or half there. Each command ends with one sentence.
func TestHistoryDamaged(t *testing.T) {
	dir := t.TempDir()
	sound := filepath.Join(dir, "sound.db")
	var withoutLog []byte
	storeMaps(t, sqlite.New(sound, sqlite.Options{}), func() {
		var err error
		if withoutLog, err = os.ReadFile(sound); err != nil {
			t.Fatal(err)
		}
	})
	text, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	commands := damagedCommands(dir)
	// A copy of the file of a sync that runs, without the write-ahead log, which has all of it.
	copied := filepath.Join(dir, "copied.db")
	if err := os.WriteFile(copied, withoutLog, 0o600); err != nil {
		t.Fatal(err)
	}
	for command, args := range commands {
		endsWithASentence(t, "without its log, "+command, args, "sqlite:"+copied, copied, "it has no tables of keepwatch sync")
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
			endsWithASentence(t, name+", "+command, args, "sqlite:"+path, path, row.want)
		}
	}
}

// TestHistoryDamagedPostgres is TestHistoryDamaged with the tables of a schema.
func TestHistoryDamagedPostgres(t *testing.T) {
	server := pgtest.Start(t)
	commands := damagedCommands(t.TempDir())
	for name, row := range map[string]struct{ change, want string }{
		"newer":       {`UPDATE %[1]s.keepwatch SET format = 99`, "use a newer keepwatch"},
		"no_format":   {`DELETE FROM %[1]s.keepwatch`, "another program has changed the tables"},
		"negative":    {`UPDATE %[1]s.keepwatch SET format = -1`, "another program has changed them"},
		"alien":       {`DROP TABLE %[1]s.keepwatch`, "the schema has no tables of keepwatch sync"},
		"no_cursors":  {`DROP TABLE %[1]s.cursors CASCADE`, `relation "cursors" does not exist`},
		"no_gaps":     {`DROP TABLE %[1]s.gaps`, `relation "gaps" does not exist`},
		"no_types":    {`DROP TABLE %[1]s.types`, `relation "types" does not exist`},
		"no_states":   {`DROP VIEW %[1]s.resources CASCADE`, `relation "resources" does not exist`},
		"an_identity": {`UPDATE %[1]s.cursors SET identity = '"x"'`, "the table cursors: "},
		"a_type":      {`UPDATE %[1]s.types SET type = '"x"'`, "the table types: "},
	} {
		to := server.URL(name)
		storeMaps(t, postgres.New(to, postgres.Options{}), func() {})
		server.SQL(fmt.Sprintf(row.change, name))
		for command, args := range commands {
			endsWithASentence(t, name+", "+command, args, to, "postgres", row.want)
		}
	}
}
