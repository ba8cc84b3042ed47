package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// undoNinth returns the SQL that makes format 8 of format 10 in a schema, of which no state is in a group.
func undoNinth(schema string) string {
	return strings.ReplaceAll(`DROP TABLE IN.peaks; DROP VIEW IN.resources; ALTER TABLE IN.states RENAME TO resources; DROP TABLE IN.groups;
		ALTER TABLE IN.resources DROP COLUMN group_id, DROP COLUMN member, ALTER COLUMN object SET NOT NULL; `, "IN.", schema+".")
}

// refuser returns a function that makes Postgres refuse a change of a table of a schema. States are those of resources.
func refuser(server *pgtest.Server, schema string) func(change, table string) (allow func()) {
	server.SQL(fmt.Sprintf(
		`CREATE FUNCTION %s.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$`, schema))
	return func(change, table string) func() {
		if table == "resources" {
			table = "states"
		}
		server.SQL(fmt.Sprintf(`CREATE TRIGGER refused BEFORE %s ON %[2]s.%[3]s EXECUTE FUNCTION %[2]s.refuse()`, change,
			schema, table))
		return func() { server.SQL(fmt.Sprintf(`DROP TRIGGER refused ON %s.%s`, schema, table)) }
	}
}

// stateOf returns a text of 4 KB that differs little from that at another revision.
func stateOf(name string, at keepwatch.Revision) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"%d","annotations":{"note":"Größe 日本 \"x\" \\u0000"}},
	"spec":{%s},"status":{"count":%d,"share":1.50e-3}}`, name, at, containers, at)
}

var containers = func() string {
	var all []string
	for i := range 90 {
		all = append(all, fmt.Sprintf(`"image%d":"registry.example.com/shop/web:%d"`, i, i*i*7919%10007))
	}
	return strings.Join(all, ",")
}()

func stored(kind keepwatch.ChangeType, name string, at keepwatch.Revision) stream.Event {
	return event(kind, &thing{name, at, stateOf(name, at)})
}

// groupedSizes returns how many states are in groups, how many groups there are, and their bytes as they are stored.
func groupedSizes(server *pgtest.Server, schema string) (states, groups, bytes int) {
	row := server.SQL(fmt.Sprintf(`SELECT count(group_id), (SELECT count(*) FROM %[1]s.groups),
		(SELECT coalesce(sum(pg_column_size(objects)), 0) FROM %[1]s.groups) FROM %[1]s.states`, schema))
	for i, n := range strings.Split(row, "|") {
		*[]*int{&states, &groups, &bytes}[i], _ = strconv.Atoi(n)
	}
	return states, groups, bytes
}

// checkGroups checks that each group is needed, and that each state has its own text of one.
func checkGroups(t *testing.T, server *pgtest.Server, schema string) {
	t.Helper()
	if wrong := server.SQL(strings.ReplaceAll(`SELECT
		(SELECT count(*) FROM IN.groups g WHERE members <> cardinality(objects)
			OR NOT EXISTS (SELECT FROM IN.states WHERE group_id = g.id)),
		(SELECT count(*) FROM IN.states s WHERE group_id IS NOT NULL AND (seen_to IS NULL OR object IS NOT NULL OR bytes IS NULL
			OR (SELECT objects[s.member] FROM IN.groups g WHERE g.id = group_id) IS NULL)),
		(SELECT count(*) - count(DISTINCT (group_id, member)) FROM IN.states WHERE group_id IS NOT NULL),
		(SELECT count(*) FROM IN.resources WHERE object IS NULL)`, "IN.", schema+".")); wrong != "0|0|0|0" {
		t.Errorf("%s: groups without states, wrong members, members of two states, states without a value: %s", schema, wrong)
	}
}

// checkValues compares the objects that SQL and the history read with those that were written.
func checkValues(t *testing.T, server *pgtest.Server, schema string, want int) {
	t.Helper()
	checkGroups(t, server, schema)
	rows, err := read(t, server.URL(schema)).Query(`SELECT name, valid_from, object FROM resources`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := 0
	for ; rows.Next(); found++ {
		var name, object string
		var at int64
		if err := rows.Scan(&name, &at, &object); err != nil {
			t.Fatal(err)
		}
		sameValue(t, "SQL", object, name, keepwatch.Revision(at))
	}
	if found != want || rows.Err() != nil {
		t.Errorf("%d rows, want %d, %v", found, want, rows.Err())
	}
	snapshotOf(t, server.URL(schema))(func(tables sink.Snapshot) error {
		return tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(s sink.State) error {
			found--
			sameValue(t, "the history", string(s.Object), s.Key.Name, s.From.Revision)
			return nil
		})
	})
	if found != 0 {
		t.Errorf("the history has %d states more or less", found)
	}
}

func sameValue(t *testing.T, who, object, name string, at keepwatch.Revision) {
	t.Helper()
	var a, b any
	err := errors.Join(json.Unmarshal([]byte(object), &a), json.Unmarshal([]byte(stateOf(name, at)), &b))
	if err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%s reads %s at %d as %s, %v", who, name, at, object, err)
	}
}

// changes writes changes of objects, each with the next revision.
type changes struct {
	t  *testing.T
	s  *postgres.Sink
	at keepwatch.Revision
}

func (c *changes) try(count uint64, now time.Time, kind keepwatch.ChangeType, names ...string) error {
	var messages []stream.Message
	for _, name := range names {
		c.at++
		messages = append(messages, stored(kind, name, c.at))
	}
	return c.s.Write(c.t.Context(), batch(count, c.at, now, messages...))
}

func (c *changes) write(count uint64, now time.Time, kind keepwatch.ChangeType, names ...string) {
	c.t.Helper()
	if err := c.try(count, now, kind, names...); err != nil {
		c.t.Fatal(err)
	}
}

// testGroups checks that states that ended more than an hour ago take a small part of their size, over restarts, that
// SQL and the history read them as they were, and that their groups are deleted with them.
func testGroups(t *testing.T, server *pgtest.Server) {
	const schema = "grouped"
	s := postgres.New(server.URL(schema), postgres.Options{Retention: 24 * time.Hour})
	open(t, s)
	begin := time.Now().Add(-30 * time.Hour)
	c := &changes{t: t, s: s}
	names := []string{"web-a1", "web-b2", "other"}
	c.write(3, begin, keepwatch.Added, names...)
	for i := range 100 {
		c.write(3, begin.Add(time.Duration(i)*time.Minute), keepwatch.Modified, names...)
		if i == 50 {
			s.Close()
			open(t, s)
		}
	}
	c.write(0, begin.Add(100*time.Minute), keepwatch.Deleted, names...)
	c.write(2, begin.Add(101*time.Minute), keepwatch.Added, "web-c3", "young")
	for i := range 10 {
		c.write(2, begin.Add(5*time.Hour+time.Duration(i)*time.Minute), keepwatch.Modified, "young")
	}
	states, groups, bytes := groupedSizes(server, schema)
	t.Logf("%d states take %d bytes in %d groups", states, bytes, groups)
	if size := len(stateOf("young", 300)); states < 295 || bytes > states*size*8/100 {
		t.Errorf("%d states of %d bytes take %d in %d groups", states, size, bytes, groups)
	}
	checkValues(t, server, schema, 303+2+10)

	for i := range 3 {
		c.write(2, time.Now().Add(time.Duration(i-4)*time.Minute), keepwatch.Modified, "young")
	}
	if states, groups, _ = groupedSizes(server, schema); states != 0 || groups != 0 {
		t.Errorf("after the retention, %d states are in %d groups", states, groups)
	}
	checkValues(t, server, schema, 5)
}

// testFewStates checks which states wait for others: those of an object that exists, until there are enough or one is a
// day old. A group spans a day.
func testFewStates(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("few"), postgres.Options{})
	s.SetGroup(time.Millisecond, 5, 0)
	open(t, s)
	c := &changes{t: t, s: s}
	begin := time.Now().Add(-100 * time.Hour)
	check := func(when string, want string) {
		t.Helper()
		c.write(1, begin, keepwatch.Modified, "clock") // a batch is what looks for states
		if got := server.SQL(`SELECT coalesce(string_agg(name || ' ' || n, ', ' ORDER BY name), '') FROM (SELECT name, count(*) AS n
			FROM few.states WHERE group_id IS NOT NULL AND name <> 'clock' GROUP BY name) grouped`); got != want {
			t.Errorf("%s: %q are in groups, want %q", when, got, want)
		}
	}
	c.write(3, begin, keepwatch.Added, "clock", "four", "gone")
	for range 4 {
		begin = begin.Add(time.Second)
		c.write(3, begin, keepwatch.Modified, "four", "gone")
	}
	begin = begin.Add(time.Minute)
	check("too few", "")
	c.write(2, begin, keepwatch.Deleted, "gone")
	begin = begin.Add(time.Minute)
	check("deleted", "gone 5")
	c.write(2, begin, keepwatch.Modified, "four")
	begin = begin.Add(time.Minute)
	check("enough", "four 5, gone 5")
	c.write(2, begin, keepwatch.Modified, "four")
	begin = begin.Add(10 * time.Hour)
	c.write(2, begin, keepwatch.Modified, "four")
	check("too few again", "four 5, gone 5")
	begin = begin.Add(15 * time.Hour)
	check("after a day", "four 7, gone 5")
	if n := server.SQL(`SELECT count(*) FROM (SELECT FROM few.states WHERE group_id IS NOT NULL GROUP BY group_id
		HAVING max(seen_to) - min(seen_to) > interval '24 hours') long`); n != "0" {
		t.Errorf("%s groups span more than a day", n)
	}
	checkGroups(t, server, "few")
}

// testSlowObjects checks that states of objects that seldom change join those of others that ended in the same day,
// also if all of them were stored before.
func testSlowObjects(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("slow_objects"), postgres.Options{})
	s.SetGroup(10_000*time.Hour, 1, 0)
	open(t, s)
	c := &changes{t: t, s: s}
	begin := time.Now().Add(-700 * time.Hour)
	names := []string{"a", "b", "c", "d", "e", "f"}
	c.write(6, begin, keepwatch.Added, names...)
	for i := range 20 {
		for j, name := range names {
			c.write(6, begin.Add(time.Duration(30*(i+1)+4*j)*time.Hour), keepwatch.Modified, name)
		}
	}
	s.SetGroup(time.Millisecond, 1, 0)
	c.write(6, begin.Add(690*time.Hour), keepwatch.Modified, "a")
	if got := server.SQL(`SELECT count(*) FILTER (WHERE group_id IS NULL), count(DISTINCT group_id) < 40 FROM slow_objects.states
		WHERE seen_to < now() - interval '12 hours'`); got != "0|t" {
		t.Errorf("states in no group, and whether there are few groups: %s", got)
	}
	if got := server.SQL(`SELECT max(span) <= interval '24 hours' FROM (SELECT max(seen_to) - min(seen_to) AS span
		FROM slow_objects.states WHERE group_id IS NOT NULL GROUP BY group_id) spans`); got != "t" {
		t.Error("a group spans more than a day")
	}
	checkValues(t, server, "slow_objects", 6*21+1)
}

// testGroupsOld opens a schema of format 8, with views of users and with rights. The views and roles read the states of
// groups, and a history that was opened before does.
func testGroupsOld(t *testing.T, server *pgtest.Server) {
	const schema = "grouped_old"
	url := server.URL(schema)
	s := postgres.New(url, postgres.Options{})
	open(t, s)
	c := &changes{t: t, s: s}
	now := time.Now()
	c.write(1, now.Add(-3*time.Hour), keepwatch.Added, "web")
	s.SetGroup(1000*time.Hour, 1, 0)
	for range 30 {
		c.write(1, now.Add(-2*time.Hour), keepwatch.Modified, "web")
	}
	s.Close()
	server.SQL(undoNinth(schema) + strings.ReplaceAll(`UPDATE SCHEMA.keepwatch SET format = 8; create schema theirs_old;
		DROP VIEW SCHEMA.current_pods; CREATE VIEW SCHEMA.current_pods AS SELECT id, namespace, name, uid, valid_from AS revision, seen_from, object
			FROM SCHEMA.resources WHERE valid_to IS NULL AND resource = 'pods';
		CREATE VIEW theirs_old."Mine" WITH (security_barrier) AS SELECT r.valid_from, r.object, to_jsonb(r.*) AS row FROM SCHEMA.resources r;
		CREATE VIEW theirs_old.nested AS SELECT valid_from, object FROM theirs_old."Mine";
		CREATE VIEW SCHEMA.joined AS SELECT a.valid_from, a.object FROM SCHEMA.resources a JOIN SCHEMA.resources b ON a.id = b.id;
		CREATE ROLE old_reader LOGIN; CREATE ROLE "Old Column" LOGIN; GRANT USAGE ON schema SCHEMA, theirs_old TO old_reader, "Old Column", PUBLIC;
		GRANT SELECT ON SCHEMA.resources, SCHEMA.keepwatch, SCHEMA.cursors, SCHEMA.gaps, SCHEMA.types TO old_reader; GRANT SELECT (object, valid_from) ON SCHEMA.resources TO "Old Column";
		GRANT SELECT ON theirs_old.nested TO PUBLIC`, "SCHEMA", schema))
	asReader := strings.Replace(url, "keepwatch@", "old_reader@", 1)
	opened, err := postgres.OpenHistory(t.Context(), asReader)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	count := func() (n int) {
		if err := opened.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			if p, err := tables.PointAt(t.Context(), []string{"pods"}, time.Now()); err != nil || p == (sink.Point{}) {
				t.Errorf("the point of now: %v, %v", p, err)
			}
			return tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(s sink.State) error {
				n++
				sameValue(t, "a reader", string(s.Object), s.Key.Name, s.From.Revision)
				return nil
			})
		}); err != nil {
			t.Error(err)
		}
		return n
	}
	if n := count(); n != 31 {
		t.Errorf("%d states of format 8", n)
	}
	s = postgres.New(url, postgres.Options{})
	open(t, s)
	c.s = s
	c.write(1, now, keepwatch.Modified, "web")
	if states, groups, _ := groupedSizes(server, schema); states != 30 || groups == 0 {
		t.Errorf("%d states are in %d groups", states, groups)
	}
	checkValues(t, server, schema, 32)
	if n := count(); n != 32 {
		t.Errorf("%d states of the newest format", n)
	}
	if got := server.SQL(`SELECT has_table_privilege('old_reader', 'grouped_old.peaks', 'SELECT')`); got != "t" {
		t.Errorf("the role that reads the other tables reads of the peaks: %s", got)
	}
	server.SQL(`REVOKE SELECT ON grouped_old.peaks FROM old_reader`)
	if n := count(); n != 32 {
		t.Errorf("%d states without the right to the peaks", n)
	}
	for user, views := range map[string][]string{
		"keepwatch":  {schema + ".resources", schema + ".joined", `theirs_old."Mine"`, "theirs_old.nested"},
		"old_reader": {schema + ".resources", "theirs_old.nested"}, "Old%20Column": {schema + ".resources", "theirs_old.nested"},
	} {
		db := read(t, strings.Replace(url, "keepwatch@", user+"@", 1))
		for _, view := range views {
			var object string
			err := db.QueryRow(`SELECT object FROM ` + view + ` WHERE valid_from = 5`).Scan(&object)
			if err != nil {
				t.Errorf("%s reads %s: %v", user, view, err)
				continue
			}
			sameValue(t, user+"'s "+view, object, "web", 5)
		}
	}
	if err := read(t, strings.Replace(url, "keepwatch@", "Old%20Column@", 1)).QueryRow(
		`SELECT name FROM ` + schema + `.resources`).Scan(new(string)); err == nil {
		t.Error("a role reads a column that was not granted")
	}
	if got := server.SQL(`SELECT reloptions, (SELECT count(*) FROM theirs_old."Mine" WHERE row ->> 'object' IS NULL) FROM pg_class
		WHERE relname = 'Mine'`); got != "{security_barrier=true}|0" {
		t.Errorf("the view has %s", got)
	}
}

// testViewsInTheWay checks that what cannot read a view in place of the table is named, and that nothing has changed.
func testViewsInTheWay(t *testing.T, server *pgtest.Server) {
	const schema = "readers_old"
	s := postgres.New(server.URL(schema), postgres.Options{})
	open(t, s)
	s.Close()
	server.SQL(undoNinth(schema) + `UPDATE readers_old.keepwatch SET format = 8; SET search_path = readers_old; CREATE ROLE other_owner`)
	for _, row := range []struct{ create, drop, want string }{
		{`MATERIALIZED VIEW copied AS SELECT * FROM resources`, `MATERIALIZED VIEW copied`, "materialized view copied"},
		{`POLICY mine ON resources USING (true)`, `POLICY mine ON resources`, "drop the policy mine"},
		{`PUBLICATION changes FOR TABLE resources`, `PUBLICATION changes`, "in publication changes"},
		{`FUNCTION f() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM resources; END`, `FUNCTION f()`, "drop the function f()"},
		{`VIEW counted AS SELECT resource, namespace, name, id, uid FROM resources GROUP BY resource, namespace, name, id`,
			`VIEW counted`, "the view counted cannot follow: drop it, start again, and make it anew: ERROR: column"},
	} {
		server.SQL(`SET search_path = readers_old; CREATE ` + row.create)
		_, err := s.Open(t.Context(), sinktest.Streams())
		if err == nil || !strings.Contains(err.Error(), row.want) ||
			!strings.Contains(err.Error(), "start again, and make it anew") {
			t.Errorf("%s: %v", row.create, err)
		}
		if kind := server.SQL(`SELECT relkind FROM pg_class WHERE oid = 'readers_old.resources'::regclass`); kind != "r" {
			t.Errorf("%s: resources is a %s", row.create, kind)
		}
		server.SQL(`SET search_path = readers_old; DROP ` + row.drop)
	}
	open(t, s)
}

// testGroupsOldRead opens a schema of format 8 while a client reads its views. The read waits for the migration,
// and Postgres cancels neither as a deadlock.
func testGroupsOldRead(t *testing.T, server *pgtest.Server) {
	const schema = "read_old"
	s := postgres.New(server.URL(schema)+"&application_name=migration", postgres.Options{})
	open(t, s)
	s.Close()
	server.SQL(undoNinth(schema) + `UPDATE read_old.keepwatch SET format = 8; SET search_path = read_old; CREATE ROLE "Other Owner";
		CREATE VIEW mine AS SELECT r.object FROM resources r JOIN pg_class ON relname = r.name; GRANT USAGE, CREATE ON SCHEMA read_old TO "Other Owner";
		ALTER VIEW mine OWNER TO "Other Owner"; GRANT SELECT ON resources TO "Other Owner"; CREATE VIEW nested AS SELECT * FROM mine`)
	tx, err := read(t, server.URL(schema)).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `LOCK TABLE gaps`); err != nil {
		t.Fatal(err)
	}
	waiting := func(application string) {
		t.Helper()
		await.True(t, application+" to wait", func() bool {
			return server.SQL(`SELECT count(*) FROM pg_stat_activity WHERE application_name = '`+application+
				`' AND wait_event_type = 'Lock'`) == "1"
		})
	}
	opened, found := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Open(t.Context(), sinktest.Streams())
		opened <- err
	}()
	waiting("migration") // for gaps, the last of its locks
	reader := read(t, server.URL(schema)+"&application_name=reader")
	go func() { found <- reader.QueryRow(`SELECT count(*) FROM nested`).Scan(new(int)) }()
	waiting("reader")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-opened, <-found); err != nil {
		t.Error(err)
	}
	if owner := server.SQL(`SELECT relowner::regrole FROM pg_class WHERE oid = 'read_old.mine'::regclass`); owner != `"Other Owner"` {
		t.Errorf("the owner of the view is %s", owner)
	}
}

// testGroupsRefused checks that a transaction that fails leaves no group behind, and that the next one makes it.
func testGroupsRefused(t *testing.T, server *pgtest.Server) {
	const schema = "groups_refused"
	s := postgres.New(server.URL(schema), postgres.Options{})
	s.SetGroup(0, 1, 0)
	open(t, s)
	refuse := refuser(server, schema)
	c := &changes{t: t, s: s}
	now := time.Now().Add(-time.Hour)
	c.write(1, now, keepwatch.Added, "web")
	allow := refuse("INSERT", "groups")
	c.write(1, now.Add(time.Second), keepwatch.Modified, "web")
	c.write(1, now.Add(2*time.Second), keepwatch.Modified, "web")
	if err := c.try(1, now.Add(3*time.Second), keepwatch.Modified, "web"); err == nil {
		t.Error("the batch was not refused")
	}
	allow()
	checkValues(t, server, schema, 3)
	c.at--
	for i := range 6 {
		c.write(1, now.Add(time.Duration(3+i)*time.Second), keepwatch.Modified, "web")
	}
	if states, groups, _ := groupedSizes(server, schema); states < 6 || groups == 0 {
		t.Errorf("%d states are in %d groups", states, groups)
	}
	checkValues(t, server, schema, 9)
}

// testNoLZ4 checks that nothing is grouped where the groups would take as much as the states.
func testNoLZ4(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("no_lz4"), postgres.Options{})
	s.SetGroup(0, 1, 0)
	open(t, s)
	s.Close()
	server.SQL(`ALTER TABLE no_lz4.groups ALTER COLUMN objects SET COMPRESSION pglz`)
	open(t, s)
	c := &changes{t: t, s: s}
	for i := range 10 {
		kind := keepwatch.Modified
		if i == 0 {
			kind = keepwatch.Added
		}
		c.write(1, time.Now().Add(time.Duration(i-20)*time.Second), kind, "web")
	}
	if states, groups, _ := groupedSizes(server, "no_lz4"); states != 0 || groups != 0 {
		t.Errorf("%d states are in %d groups", states, groups)
	}
	checkValues(t, server, "no_lz4", 10)
}

// testGroupDamaged checks that what cannot be read is an error, and is not answered with something else.
func testGroupDamaged(t *testing.T, server *pgtest.Server) {
	s := postgres.New(server.URL("groups_damaged"), postgres.Options{})
	s.SetGroup(0, 1, 0)
	open(t, s)
	c := &changes{t: t, s: s}
	for i := range 5 {
		kind := keepwatch.Modified
		if i == 0 {
			kind = keepwatch.Added
		}
		c.write(1, time.Now().Add(time.Duration(i-20)*time.Second), kind, "web")
	}
	s.Close()
	for _, row := range []struct{ statement, want string }{
		{`UPDATE groups_damaged.groups SET objects[1] = 'short'`, "invalid input syntax for type json"},
		{`DELETE FROM groups_damaged.groups`, "pods ns/web at revision 1: the group of the state is damaged"},
	} {
		server.SQL(row.statement)
		past, err := postgres.OpenHistory(t.Context(), server.URL("groups_damaged"))
		if err != nil {
			t.Fatal(err)
		}
		err = past.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			return tables.States(t.Context(), sink.StateQuery{Resource: "pods", Namespace: "ns", Name: "web"},
				func(sink.State) error { return nil })
		})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %s", err, row.want)
		}
		past.Close()
	}
}

// TestGroupsKilled kills Postgres while states join and leave groups. Each state that the next process finds is as it
// was written.
func TestGroupsKilled(t *testing.T) {
	t.Parallel() // it mostly waits
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	server := pgtest.Start(t)
	s := postgres.New(server.URL("killed"), postgres.Options{MaxSize: 400_000})
	s.SetGroup(0, 1, 0)
	exists := map[string]bool{}
	c := &changes{t: t, s: s}
	for range 8 {
		known := open(t, s)[0]
		c.at = known.Progress.Cursor
		clear(exists)
		for e := range known.Entries.All() {
			exists[e.Key.Name] = true
		}
		written, ended := make(chan struct{}), make(chan error)
		go func() {
			for {
				var messages []stream.Message
				for i := range 20 {
					c.at++
					name, kind := fmt.Sprintf("web-%d", (int(c.at)+i)%7), keepwatch.Added
					if exists[name] {
						kind = keepwatch.Modified
					}
					exists[name] = true
					messages = append(messages, stored(kind, name, c.at))
				}
				if err := s.Write(context.Background(), batch(uint64(len(exists)), c.at, time.Now(), messages...)); err != nil {
					ended <- err
					return
				}
				select {
				case written <- struct{}{}:
				default:
				}
			}
		}()
		for range 2 + random.IntN(20) {
			select {
			case <-written:
			case err := <-ended:
				t.Fatal(err)
			}
		}
		server.Kill()
		if err := <-ended; !errors.As(err, new(*sink.Unavailable)) {
			t.Fatal(err)
		}
		s.Close()
		server.Restart()
		rows, err := strconv.Atoi(server.SQL(`SELECT count(*) FROM killed.states`))
		if err != nil {
			t.Fatal(err)
		}
		if states, groups, _ := groupedSizes(server, "killed"); states == 0 || groups == 0 {
			t.Errorf("of %d states, %d are in %d groups", rows, states, groups)
		}
		checkValues(t, server, "killed", rows)
	}
	if size := server.SQL(`SELECT sum(bytes) <= 400000 FROM killed.states`); size != "t" {
		t.Error("the states have more than --max-size")
	}
}
