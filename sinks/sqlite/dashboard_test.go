package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestEventDashboard runs the queries of the dashboard of Events.
func TestEventDashboard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	if _, err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(strings.Replace(sinktest.EventTables, "TABLE_OF_STATES", "states", 1)); err != nil {
		t.Fatal(err)
	}
	queries := sinktest.EventDashboard(t, "keepwatch-events-sqlite.json", "${__from}", "1795910400000", "${__to}",
		"1795996800000")
	for title, query := range queries {
		rows, err := db.Query(query)
		if err != nil {
			t.Errorf("%s: %v\n%s", title, err, query)
			continue
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			var cells []string
			for i, value := range values {
				text := fmt.Sprint(*value.(*any))
				if columns[i] != "time" {
					cells = append(cells, text)
				} else if len(text) != len("1795919520") {
					t.Errorf("%s: time %s", title, text)
				}
			}
			lines = append(lines, strings.Join(cells, " "))
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(lines, "\n"); got != sinktest.EventPanels[title] {
			t.Errorf("%s: %q, want %q\n%s", title, got, sinktest.EventPanels[title], query)
		}
	}
}
