package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// deployment is an object of the namespace shop.
type deployment struct {
	thing
	json string
}

func (d *deployment) Key() keepwatch.Key { return keepwatch.Key{Namespace: "shop", Name: d.name} }
func (d *deployment) JSON() []byte       { return []byte(d.json) }

// withImage returns a change to an image, which a manager has written.
func withImage(kind keepwatch.ChangeType, name string, at keepwatch.Revision, generation int, image,
	manager string) stream.Event {
	text := fmt.Sprintf(`{"metadata":{"generation":%d,"managedFields":[
		{"manager":%q,"fieldsV1":{"f:spec":{"f:image":{}}}},{"manager":"other","fieldsV1":{"f:spec":{"f:imagePullPolicy":{}}}}]},
		"spec":{"template":{"spec":{"containers":[{"image":%q}]}}}}`, generation, manager, image)
	return stream.Event{Type: kind, Revision: at, Object: &deployment{thing{name, at}, text}}
}

// TestQueriesOfThePage runs the queries of docs/sync.md. What has changed in the last hour is without the first list,
// which is not older, and with deletions.
func TestQueriesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/sync.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## SQL worth having\n")
	section, _, _ = strings.Cut(section, "\n## ")
	queries := regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(section, -1)
	if len(queries) < 10 {
		t.Fatalf("%d queries", len(queries))
	}

	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	s.SetCompress(0, 0) // the queries read what is compressed, too
	var streams []sink.Stream
	for _, r := range []string{"deployments.apps", "pods"} {
		streams = append(streams, sink.Stream{ID: stream.Identity{Resource: r, Cluster: stream.Cluster{UID: "test"}}})
	}
	if _, err := s.Open(t.Context(), streams); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	begin, progress := time.Now().Add(-30*time.Minute), sink.Progress{}
	write := func(count uint64, at keepwatch.Revision, messages ...stream.Message) error {
		p := stream.Piece{Messages: messages, Cursor: at, Count: count, Position: []byte(`{}`)}
		progress = progress.After(p)
		return s.Write(t.Context(),
			sink.Batch{Time: begin.UTC().Add(time.Duration(at) * time.Second).Truncate(time.Millisecond),
				Pieces: []sink.Piece{{Piece: p, After: progress}}})
	}
	err = errors.Join(
		write(3, 10, withImage(keepwatch.Added, "web", 5, 1, "a", "kubectl-create"), withImage(keepwatch.Added, "old", 6, 1,
			"a", "helm"),
			withImage(keepwatch.Added, "quiet", 7, 1, "a", "helm"), stream.Synced{Revision: 10, Count: 3}),
		write(3, 20, withImage(keepwatch.Modified, "web", 20, 2, "b", "kubectl-set")),
		write(3, 21, withImage(keepwatch.Modified, "web", 21, 3, "b", "kubectl-set")), // of an annotation
		write(2, 22, stream.Event{Type: keepwatch.Deleted, Revision: 22, Object: &deployment{thing{"old", 6}, `{}`}}),
		write(3, 23, withImage(keepwatch.Added, "new", 23, 1, "a", "helm")))
	if err != nil {
		t.Fatal(err)
	}

	// The times of the page are those of its examples. In place of them: from behind the first list until now.
	times := strings.NewReplacer("2026-11-23 04:00:00", begin.UTC().Add(15*time.Second).Format(time.DateTime),
		"2026-11-23 05:00:00", time.Now().UTC().Format(time.DateTime))
	const difference = "WITH earlier AS ("
	const lastHour, between = "seen > datetime('now', '-1 hour')", "seen >= '2026-11-23 04:00:00' AND seen < '2026-11-23 05:00:00'"
	if !strings.Contains(section, lastHour) || !strings.Contains(strings.Join(strings.Fields(section), " "), between) {
		t.Fatal("the conditions on the time are others")
	}
	for _, query := range queries {
		if strings.Contains(query, lastHour) {
			queries = append(queries, "-- between two times\n"+strings.Replace(query, lastHour, between, 1))
		}
	}

	db := read(t, path)
	results := map[string][]string{} // by the query's first line
	for _, query := range queries {
		query = times.Replace(query)
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatalf("%v\n%s", err, query)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(strings.TrimSpace(query), "\n")
		if strings.HasPrefix(first, difference) {
			first = difference // without the time
		}
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = &values[i]
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			if first != difference { // whose first column is no time
				values = values[1:]
			}
			results[first] = append(results[first], fmt.Sprintln(values...))
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatalf("%v\n%s", err, query)
		}
	}
	for first, want := range map[string][]string{
		"WITH changes AS (": {
			"changed deployments.apps shop web 20", "changed deployments.apps shop web 21",
			"deleted deployments.apps shop old 22", "added deployments.apps shop new 23",
		},
		"-- between two times": {
			"changed deployments.apps shop web 20", "changed deployments.apps shop web 21",
			"deleted deployments.apps shop old 22", "added deployments.apps shop new 23",
		},
		difference: {
			"added deployments.apps shop new", "deleted deployments.apps shop old", "changed deployments.apps shop web",
		},
		"SELECT r.seen_from AS seen, r.namespace, r.name, p.object -> 'spec' AS old, r.object -> 'spec' AS new": {
			`shop web {"template":{"spec":{"containers":[{"image":"a"}]}}} {"template":{"spec":{"containers":[{"image":"b"}]}}}`,
		},
		"SELECT seen_from, m.value ->> 'manager' AS manager, m.value ->> 'operation' AS operation, m.value ->> 'time' AS written": {
			"kubectl-create <nil> <nil>", "kubectl-set <nil> <nil>", "kubectl-set <nil> <nil>",
		},
	} {
		var got []string
		for _, row := range results[first] {
			got = append(got, strings.Join(strings.Fields(row), " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nhas %q\nwant %q", first, got, want)
		}
	}
}
