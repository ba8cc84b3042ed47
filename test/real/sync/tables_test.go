package sync

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "modernc.org/sqlite"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

// tables are the contents of a database.
type tables struct {
	sinktest.Tables
	db       *sql.DB
	snapshot sql.IsolationLevel // of a transaction that reads one state
	dialect  *strings.Replacer  // of queries for SQLite
	cuts     int                // at which they were compared with the server
}

func openTables(t *testing.T, driver, address string, snapshot sql.IsolationLevel, dialect ...string) *tables {
	t.Helper()
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &tables{Tables: sinktest.Tables{DB: db}, db: db, snapshot: snapshot, dialect: strings.NewReplacer(dialect...)}
}

func missingPostgres() string { return pgtest.Missing() }

func followPostgres(t *testing.T) *follower {
	server := pgtest.Start(t)
	cutter := sinktest.NewCutter(t, server.Addr())
	return &follower{
		contents: openTables(t, "pgx", server.URL("storm"), sql.LevelRepeatableRead, "datetime('now', '-1 hour')",
			"now() - interval '1 hour'",
			"json_each(object, '$.metadata.managedFields')", "jsonb_array_elements(object -> 'metadata' -> 'managedFields')"),
		to: strings.Replace(server.URL("storm"), server.Addr(), cutter.Addr(), 1),
		killSink: func(*rand.Rand) {
			server.Kill()
			server.Restart()
		},
		cut: cutWith(cutter),
	}
}

// cutWith breaks connections at once, or in the middle of what the process sends next.
func cutWith(c *sinktest.Cutter) func(*rand.Rand) {
	return func(random *rand.Rand) {
		if random.IntN(2) == 0 {
			c.Cut()
		} else {
			c.CutWithin(20_000, random)
		}
	}
}

func followSQLite(t *testing.T) *follower {
	file := filepath.Join(t.TempDir(), "state.db")
	return &follower{contents: openTables(t, "sqlite", file+"?_pragma=busy_timeout(10000)", sql.LevelDefault),
		to: "sqlite:" + file}
}

// compareCut compares the rows that are valid at the newest cut with the server's lists at exactly that
// revision, unless the server has forgotten it.
func (f *follower) compareCut(t *testing.T) {
	t.Helper()
	tables, ok := f.contents.(*tables)
	if !ok {
		return // a broker has no state at a revision
	}
	cut, rows, err := tables.readCut(t.Context())
	if err != nil || cut.Revision == 0 {
		return // the database is down, or a list is not complete
	}
	want, _, forgotten := f.objects(t, metav1.ListOptions{ResourceVersion: cut.Revision.String(),
		ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if forgotten != nil {
		return
	}
	if differs := difference(rows, want); differs != "" {
		t.Errorf("%s at the cut %d: %s", f.name, cut.Revision, differs)
	}
	tables.cuts++
}

// readCut reads the newest cut and its rows in one state of the database.
func (d *tables) readCut(ctx context.Context) (cut sink.Cut, rows []sinktest.Row, err error) {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: d.snapshot, ReadOnly: d.snapshot != sql.LevelDefault})
	if err != nil {
		return cut, nil, err
	}
	defer func() { _ = tx.Rollback() }()
	var revision *int64
	if err := tx.QueryRowContext(ctx, `SELECT epoch, revision FROM synced WHERE line = 0`).Scan(&cut.Epoch,
		&revision); err != nil || revision == nil {
		return sink.Cut{}, nil, err
	}
	cut.Revision = keepwatch.Revision(*revision)
	rows, err = sinktest.Tables{DB: tx}.AsOf(ctx, 0, cut)
	return cut, rows, err
}

// received reads the history of the tables, after SQL has judged it.
func (d *tables) received(t *testing.T) *received {
	problems, err := d.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	all := &received{gaps: map[string][]stream.Gap{}}
	each(t, d.db, `SELECT resource, from_revision, to_revision FROM gaps`, func(scan func(...any) error) error {
		var resource string
		var from, to int64
		err := scan(&resource, &from, &to)
		all.gaps[resource] = append(all.gaps[resource], stream.Gap{From: keepwatch.Revision(from),
			To: keepwatch.Revision(to)})
		return err
	})
	each(t, d.db, `SELECT resource, name, uid, valid_from, deleted, object FROM resources ORDER BY id`,
		func(scan func(...any) error) error {
			var s sinktest.State
			var revision int64
			err := scan(&s.Resource, &s.Name, &s.UID, &revision, &s.Deleted, &s.Object)
			s.Revision = keepwatch.Revision(revision)
			if !strings.Contains(s.Object, s.UID) {
				t.Errorf("the object of %s is %s", s.UID, s.Object)
			}
			s.Object = "" // of a million
			all.states = append(all.states, s)
			return err
		})
	return all
}

// examples runs the queries of docs/sync.md.
func (d *tables) examples(t *testing.T) {
	text, err := os.ReadFile("../../../docs/sync.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## SQL worth having\n")
	section, _, _ = strings.Cut(section, "\n## ")
	queries := regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(section, -1)
	if len(queries) < 8 {
		t.Fatalf("%d queries", len(queries))
	}
	for _, query := range queries {
		n := 0
		each(t, d.db, d.dialect.Replace(query), func(func(...any) error) error {
			n++
			return nil
		})
		t.Logf("%d rows of %s", n, query)
	}
}

func each(t *testing.T, db *sql.DB, query string, visit func(scan func(...any) error) error) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := visit(rows.Scan); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestRestored restores etcd from a backup while a sync runs: all types enter the next epoch, and what
// was undone is stored as replaced or deleted.
func TestRestored(t *testing.T) {
	etcd := peer.StartEtcd(t)
	s := newStorm(t, peer.KubernetesOn(t, etcd), 1)
	f := followSQLite(t)
	f.flags = []string{"--idle-timeout", "1h"} // idle watches would show the restore, too, and later
	s.follow(f)
	f.calm()
	tables := f.contents.(*tables)
	s.writeAll(func(ctx context.Context, c *load.Churn) error { return c.Create(ctx) })
	s.converge()
	data, backup := filepath.Join(filepath.Dir(etcd.Log()), "etcd"), filepath.Join(t.TempDir(), "backup")
	etcd.Kill()
	if err := errors.Join(os.CopyFS(backup, os.DirFS(data)), etcd.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.writeAll(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, 80) })
	newest := f.converge(t, f.current)
	etcd.Kill()
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)), etcd.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.restartServer()
	restored := f.converge(t, tables.readCut)
	cut, _, err := tables.readCut(t.Context())
	if err != nil || cut.Epoch != 1 || cut.Revision >= newest || restored >= newest {
		t.Errorf("after the restore the cut is %+v, %v, and the server is at %d; before it was at %d", cut, err, restored,
			newest)
	}
	problems, err := tables.Invariants(t.Context())
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	undone := 0
	if err := tables.db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM resources WHERE epoch = 0 AND to_epoch = 1`).Scan(&undone); err != nil || undone == 0 {
		t.Errorf("%d states were undone, %v", undone, err)
	}
	t.Logf("the restore from %d to %d has undone %d states; cut %+v", newest, restored, undone, cut)
}

// TestTwoEtcds stores ConfigMaps in an etcd of their own: they are complete at a revision of their own.
func TestTwoEtcds(t *testing.T) {
	other := peer.StartEtcd(t)
	server := peer.Kubernetes(t, "--etcd-servers-overrides", "/configmaps#"+string(other.Endpoint))
	f := followSQLite(t)
	f.command = peer.Command{Path: peer.Keepwatch(t), Log: filepath.Join(t.TempDir(), "stderr"), Args: []string{
		"sync", "serviceaccounts,configmaps,namespaces", "-A", "--to", f.to, "--kubeconfig", server.Kubeconfig(),
		"--cache-dir", t.TempDir(), "--until-synced",
	}}
	f.launch(t)
	if code := f.process.ExitCode(); code != 0 {
		t.Fatalf("exit code %d: %s", code, f.stderr())
	}
	var got []string
	each(t, f.contents.(*tables).db,
		`SELECT resource, cursors.line, revision FROM cursors JOIN synced USING (line) ORDER BY resource`,
		func(scan func(...any) error) error {
			var resource string
			var line, revision int64
			err := scan(&resource, &line, &revision)
			got = append(got, fmt.Sprint(resource, line))
			return err
		})
	if want := []string{"configmaps1", "namespaces0", "serviceaccounts0"}; !slices.Equal(got, want) {
		t.Errorf("the lines are %q, want %q", got, want)
	}
	if text := f.stderr(); strings.Count(text, "synced at") != 2 {
		t.Error(text)
	}
}
