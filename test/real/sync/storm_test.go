// Package sync stores several resources of a real kube-apiserver in databases, receivers, Kafka and NATS by keepwatch
// sync, while the sync, the database and the API server are killed, connections break and etcd forgets
// its history.
package sync

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	_ "modernc.org/sqlite"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/faults"
	"github.com/keepwatch/keepwatch/internal/natstest"
	"github.com/keepwatch/keepwatch/internal/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag    = flag.Uint64("sync.seed", 1, "draw faults and changes as a run did that printed this seed; 0 draws anew")
	objectsFlag = flag.Int("sync.objects", 100, "how many objects of each of five types there are")
	changesFlag = flag.Int("sync.changes", 900, "how many changes follow their creation, of all types together")
	kafkaFlag   = flag.Bool("sync.kafka", false, "run the storm with Kafka, too, whose broker starts slowly")
	killsFlag   = flag.Int("sync.kills", 4, "how often something is killed during the changes")
)

func TestMain(m *testing.M) {
	natstest.Main()
	peer.Main(m)
}

// kinds are the five types of the storm.
var kinds = []struct {
	resource schema.GroupVersionResource
	create   func(namespace string, i int) *unstructured.Unstructured
}{
	{load.Pods, load.SmallPod},
	{load.Widgets, load.Widget},
	{corev1.SchemeGroupVersion.WithResource("configmaps"), small("v1", "ConfigMap")},
	{corev1.SchemeGroupVersion.WithResource("serviceaccounts"), small("v1", "ServiceAccount")},
	{schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, small("coordination.k8s.io/v1", "Lease")},
}

func small(apiVersion, kind string) func(string, int) *unstructured.Unstructured {
	return func(namespace string, i int) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"namespace": namespace, "name": fmt.Sprintf("o-%05d", i), "annotations": map[string]any{"text": "☃ ' \" \\ $1"}},
		}}
	}
}

// names are the types of the storm, as arguments of keepwatch sync.
func names() []string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.resource.GroupResource().String())
	}
	return all
}

// TestPostgres runs the storm with Postgres, which is killed, too.
func TestPostgres(t *testing.T) {
	database := pgtest.Start(t)
	db, err := sql.Open("pgx", database.URL("storm"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	storm(t, database.URL("storm"), db, sql.LevelRepeatableRead, func() {
		database.Kill()
		database.Restart()
	})
}

// TestSQLite runs the storm with a file.
func TestSQLite(t *testing.T) {
	to, db := file(t)
	storm(t, to, db, sql.LevelDefault, nil)
}

func file(t *testing.T) (to string, db *sql.DB) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "state.db")
	db, err := sql.Open("sqlite", name+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return "sqlite:" + name, db
}

// TestRestored restores etcd from a backup while a sync runs: all types enter the next epoch, and what
// was undone is stored as replaced or deleted.
func TestRestored(t *testing.T) {
	etcd := peer.StartEtcd(t)
	to, db := file(t)
	r := &runner{t: t, server: peer.KubernetesOn(t, etcd), random: rand.New(rand.NewPCG(1, 1)), db: db, killed: map[string]int{}}
	r.prepare(1)
	r.start(1, to)()
	r.writeAll(func(ctx context.Context, c *load.Churn) error { return c.Create(ctx) })
	r.converge(r.readCurrent)
	data, backup := filepath.Join(filepath.Dir(etcd.Log()), "etcd"), filepath.Join(t.TempDir(), "backup")
	etcd.Kill()
	if err := errors.Join(os.CopyFS(backup, os.DirFS(data)), etcd.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.writeAll(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, 80) })
	newest := r.converge(r.readCurrent)
	etcd.Kill()
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)), etcd.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.restartServer()
	restored := r.converge(r.readCut)
	cut, _, err := r.readCut()
	if err != nil || cut.Epoch != 1 || cut.Revision >= newest || restored >= newest {
		t.Errorf("after the restore the cut is %+v, %v, and the server is at %d; before it was at %d", cut, err, restored, newest)
	}
	problems, err := sinktest.Tables{DB: db}.Invariants(t.Context())
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	undone := 0
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM resources WHERE epoch = 0 AND to_epoch = 1`).Scan(&undone); err != nil || undone == 0 {
		t.Errorf("%d states were undone, %v", undone, err)
	}
	t.Logf("the restore from %d to %d has undone %d states; cut %+v", newest, restored, undone, cut)
}

// TestTwoEtcds stores ConfigMaps in an etcd of their own: they are complete at a revision of their own.
func TestTwoEtcds(t *testing.T) {
	other := peer.StartEtcd(t)
	server := peer.Kubernetes(t, "--etcd-servers-overrides", "/configmaps#"+string(other.Endpoint))
	to, db := file(t)
	r := &runner{t: t, server: server, db: db}
	r.command = peer.Command{Path: peer.Keepwatch(t), Log: filepath.Join(t.TempDir(), "stderr"), Args: []string{
		"sync", "serviceaccounts,configmaps,namespaces", "-A", "--to", to, "--kubeconfig", server.Kubeconfig(), "--cache-dir", t.TempDir(), "--until-synced",
	}}
	r.launch()
	if code := r.process.ExitCode(); code != 0 {
		t.Fatalf("exit code %d: %s", code, r.stderr())
	}
	var got []string
	each(t, db, `SELECT resource, cursors.line, revision FROM cursors JOIN synced USING (line) ORDER BY resource`, func(scan func(...any) error) error {
		var resource string
		var line, revision int64
		err := scan(&resource, &line, &revision)
		got = append(got, fmt.Sprint(resource, line))
		return err
	})
	if want := []string{"configmaps1", "namespaces0", "serviceaccounts0"}; !slices.Equal(got, want) {
		t.Errorf("the lines are %q, want %q", got, want)
	}
	if text := r.stderr(); strings.Count(text, "synced at") != 2 {
		t.Error(text)
	}
}

// received is what a receiver or a client of a broker has, each type at a revision of its own.
type received struct {
	current func(ctx context.Context, line int) ([]sinktest.Row, error)
	judge   func(*runner) // compares everything that was received with the writes
}

// runner is one storm.
type runner struct {
	t        *testing.T
	server   *peer.Server
	client   dynamic.Interface
	random   *rand.Rand
	churns   []*load.Churn
	process  *peer.Process
	command  peer.Command
	db       *sql.DB
	snapshot sql.IsolationLevel // of a transaction that reads one state
	received *received          // in place of db
	flags    []string           // of keepwatch sync
	killed   map[string]int
	cuts     int // at which the tables were compared with the server
}

func storm(t *testing.T, to string, db *sql.DB, snapshot sql.IsolationLevel, killDatabase func()) {
	(&runner{db: db, snapshot: snapshot}).run(t, to, killDatabase)
}

// run runs a storm. The rest of the runner is set.
func (r *runner) run(t *testing.T, to string, killDatabase func()) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	r.t, r.server, r.random, r.killed = t, peer.Kubernetes(t), rand.New(rand.NewPCG(seed, 1)), map[string]int{}
	r.prepare(seed)
	calm := r.start(seed, to)
	r.work(killDatabase)
	calm()
	// The idle timeout of the test is shorter than the period of bookmarks; at a start they are asked for.
	r.process.Kill()
	r.launch()
	if r.received != nil {
		r.converge(r.readCurrent)
		r.received.judge(r)
	} else {
		r.converge(r.readCut)
		r.judge()
	}
	if err := r.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.process.ExitCode(); code != 0 {
		t.Errorf("after SIGTERM it exits with %d", code)
	}
	objects := 0
	for _, c := range r.churns {
		objects += len(c.Records())
	}
	t.Logf("%d objects lived; killed: %v; compared at %d cuts during the changes", objects, r.killed, r.cuts)
}

// prepare defines the types and their objects' writers.
func (r *runner) prepare(seed uint64) {
	t, config := r.t, r.server.Config()
	if err := load.DefineWidgets(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if r.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "storm"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, k := range kinds {
		c := &load.Churn{Resource: k.resource, Namespace: "storm", Names: *objectsFlag, Seed: seed + uint64(i), Make: k.create}
		if err := c.Connect(rest.CopyConfig(config)); err != nil {
			t.Fatal(err)
		}
		r.churns = append(r.churns, c)
	}
}

// start starts the sync behind a proxy with faults, which calm ends.
func (r *runner) start(seed uint64, to string) (calm func()) {
	t := r.t
	quiet := make(chan struct{})
	proxy := faults.New(t, r.server.Config(), faults.Plan{Seed: seed, Fate: func(random *rand.Rand, req faults.Request) faults.Fault {
		select {
		case <-quiet:
			return faults.None
		default:
			return faults.OneOf(0.3, 200<<10, faults.Storm())(random, req)
		}
	}})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, proxy.Config()); err != nil {
		t.Fatal(err)
	}
	r.command = peer.Command{Path: peer.Keepwatch(t), Log: filepath.Join(dir, "stderr"), Args: []string{
		"sync", strings.Join(names(), ","), "-n", "storm", "--to", to, "--kubeconfig", kubeconfig, "--idle-timeout", "5s", "--cache-dir", dir,
	}}
	r.command.Args = append(r.command.Args, r.flags...)
	r.launch()
	t.Cleanup(func() { r.process.Kill() })
	return func() { close(quiet) }
}

func (r *runner) launch() {
	r.t.Helper()
	var err error
	if r.process, err = peer.Start(r.command); err != nil {
		r.t.Fatal(err)
	}
}

// work changes objects, and kills something at random moments.
func (r *runner) work(killDatabase func()) {
	r.during(func(ctx context.Context, c *load.Churn) error { return c.Create(ctx) }, 2, killDatabase)
	r.converge(r.readCurrent) // from now on only an object within a gap may be missing
	each := *changesFlag / len(kinds)
	r.during(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, each) }, *killsFlag, killDatabase)
	// What has changed while no process followed and etcd forgot shows only a list.
	r.process.Kill()
	r.writeAll(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, each/5) })
	r.compact()
	r.restartServer()
	r.launch()
	r.during(func(ctx context.Context, c *load.Churn) error { return c.Run(ctx, each/5) }, 1, killDatabase)
}

func (r *runner) writeAll(write func(context.Context, *load.Churn) error) {
	r.t.Helper()
	group, ctx := errgroup.WithContext(r.t.Context())
	for _, c := range r.churns {
		group.Go(func() error { return write(ctx, c) })
	}
	if err := group.Wait(); err != nil {
		r.t.Fatalf("churn: %v", err)
	}
}

// during writes while it kills something at least so often.
func (r *runner) during(write func(context.Context, *load.Churn) error, kills int, killDatabase func()) {
	done := make(chan error, 1)
	go func() {
		group, ctx := errgroup.WithContext(r.t.Context())
		for _, c := range r.churns {
			group.Go(func() error { return write(ctx, c) })
		}
		done <- group.Wait()
	}()
	writing := true
	for writing || kills > 0 {
		select {
		case err := <-done:
			if err != nil {
				r.t.Fatalf("churn: %v", err)
			}
			writing, done = false, nil
		case <-time.After(time.Duration(300+r.random.IntN(2500)) * time.Millisecond):
			kills--
			r.kill(killDatabase)
			r.compareCut()
		}
	}
}

func (r *runner) kill(killDatabase func()) {
	switch n := r.random.IntN(10); {
	case n < 4 || killDatabase == nil && n < 8:
		r.killed["sync"]++
		r.process.Kill()
		if r.random.IntN(2) == 0 {
			r.compact()
		}
		r.launch()
	case n < 8:
		r.killed["database"]++
		killDatabase()
	default:
		r.compact()
	}
	select {
	case <-r.process.Done():
		r.t.Fatalf("the sync ended by itself with exit code %d: %s", r.process.ExitCode(), r.stderr())
	default:
	}
}

func (r *runner) compact() {
	r.t.Helper()
	r.killed["history"]++
	if _, err := r.server.Compact(r.t.Context()); err != nil && !strings.Contains(err.Error(), "has been compacted") {
		r.t.Fatal(err)
	}
}

func (r *runner) restartServer() {
	r.t.Helper()
	r.killed["API server"]++
	r.server.Kill()
	if err := r.server.Restart(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// compareCut compares the rows that are valid at the newest cut with the server's lists at exactly that
// revision, unless the server has forgotten it.
func (r *runner) compareCut() {
	if r.received != nil {
		return
	}
	cut, rows, err := r.readCut()
	if err != nil || cut.Revision == 0 {
		return // the database is down, or a list is not complete
	}
	want := map[string]*unstructured.Unstructured{}
	for _, k := range kinds {
		list, err := r.client.Resource(k.resource).Namespace("storm").List(r.t.Context(), metav1.ListOptions{
			ResourceVersion: cut.Revision.String(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		switch {
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			return
		case err != nil:
			r.t.Fatalf("list %s at %d: %v", k.resource.Resource, cut.Revision, err)
		}
		add(want, k.resource, list.Items)
	}
	if differs := difference(rows, want); differs != "" {
		r.t.Errorf("at the cut %d: %s", cut.Revision, differs)
	}
	r.cuts++
}

// readCut reads the newest cut and its rows in one state of the database.
func (r *runner) readCut() (cut sink.Cut, rows []sinktest.Row, err error) {
	ctx := r.t.Context()
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: r.snapshot, ReadOnly: r.snapshot != sql.LevelDefault})
	if err != nil {
		return cut, nil, err
	}
	defer func() { _ = tx.Rollback() }()
	var revision *int64
	if err := tx.QueryRowContext(ctx, `SELECT epoch, revision FROM synced WHERE line = 0`).Scan(&cut.Epoch, &revision); err != nil || revision == nil {
		return sink.Cut{}, nil, err
	}
	cut.Revision = keepwatch.Revision(*revision)
	rows, err = sinktest.Tables{DB: tx}.AsOf(ctx, 0, cut)
	return cut, rows, err
}

func add(state map[string]*unstructured.Unstructured, resource schema.GroupVersionResource, items []unstructured.Unstructured) {
	for i := range items {
		state[resource.GroupResource().String()+" "+items[i].GetName()] = &items[i]
	}
}

// difference describes the first difference between rows and objects, or returns "".
func difference(rows []sinktest.Row, want map[string]*unstructured.Unstructured) string {
	seen := map[string]bool{}
	for _, row := range rows {
		key := row.Resource + " " + row.Name
		o, ok := want[key]
		if !ok {
			return key + " does not exist on the server"
		}
		if seen[key] {
			return key + " is stored twice"
		}
		seen[key] = true
		if row.UID != string(o.GetUID()) || row.Revision.String() != o.GetResourceVersion() {
			return fmt.Sprintf("%s is %s/%d, on the server %s/%s", key, row.UID, row.Revision, o.GetUID(), o.GetResourceVersion())
		}
		text, err := o.MarshalJSON()
		if err != nil || !sameJSON(text, []byte(row.Object)) {
			return fmt.Sprintf("%s is\n%s\non the server\n%s", key, row.Object, text)
		}
	}
	for key := range want {
		if !seen[key] {
			return key + " is missing"
		}
	}
	return ""
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)) == nil && reflect.DeepEqual(x, y)
}

// settle bounds the time that the sync may need after the last fault.
const settle = 3 * time.Minute

// readCurrent reads the current rows. They are at any revision.
func (r *runner) readCurrent() (sink.Cut, []sinktest.Row, error) {
	current := sinktest.Tables{DB: r.db}.Current
	if r.received != nil {
		current = r.received.current
	}
	rows, err := current(r.t.Context(), 0)
	return sink.Cut{Revision: math.MaxInt64}, rows, err
}

// converge waits until the rows equal the server, at the server's newest revision or above. It returns the
// greatest revision of the server's objects.
func (r *runner) converge(read func() (sink.Cut, []sinktest.Row, error)) (newest keepwatch.Revision) {
	want := map[string]*unstructured.Unstructured{}
	for _, k := range kinds {
		list, err := r.client.Resource(k.resource).Namespace("storm").List(r.t.Context(), metav1.ListOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		add(want, k.resource, list.Items)
		for _, o := range list.Items {
			revision, err := keepwatch.ParseRevision(o.GetResourceVersion())
			if err != nil {
				r.t.Fatal(err)
			}
			newest = max(newest, revision)
		}
	}
	differs := ""
	for end := time.Now().Add(settle); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		cut, rows, err := read()
		if differs = difference(rows, want); err == nil && differs == "" && cut.Revision >= newest {
			return newest
		}
		differs = fmt.Sprintf("cut %d of at least %d, %v: %s", cut.Revision, newest, err, differs)
		select {
		case <-r.process.Done():
			r.t.Fatalf("the sync ended by itself with exit code %d: %s", r.process.ExitCode(), r.stderr())
		default:
		}
	}
	r.t.Fatalf("the tables do not equal the server after %v: %s\n%s", settle, differs, r.stderr())
	return 0
}

// judge compares the history in the tables with the writes: every deletion is there with the last
// state, and only an object that was created and deleted within a gap may be missing.
func (r *runner) judge() {
	t, ctx := r.t, r.t.Context()
	problems, err := sinktest.Tables{DB: r.db}.Invariants(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	type gap struct{ from, to int64 }
	gaps := map[string][]gap{}
	each(t, r.db, `SELECT resource, from_revision, to_revision FROM gaps`, func(scan func(...any) error) error {
		var resource string
		var g gap
		err := scan(&resource, &g.from, &g.to)
		gaps[resource] = append(gaps[resource], g)
		return err
	})
	deleted := map[string]bool{} // UID → whether it ended by a deletion
	each(t, r.db, `SELECT uid, deleted, object FROM resources ORDER BY id`, func(scan func(...any) error) error {
		var uid, object string
		var gone bool
		err := scan(&uid, &gone, &object)
		deleted[uid] = gone
		if !strings.Contains(object, uid) {
			t.Errorf("the object of %s is %s", uid, object)
		}
		return err
	})
	missed, total := 0, 0
	for i, k := range kinds {
		resource := k.resource.GroupResource().String()
		for _, o := range r.churns[i].Records() {
			total++
			gone, stored := deleted[string(o.UID)]
			created, err := strconv.ParseInt(o.Created, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case stored && gone != o.Deleted:
				t.Errorf("%s %s (%s): deleted is %v, and the deletion is stored: %v", resource, o.Name, o.UID, o.Deleted, gone)
			case !stored && !slices.ContainsFunc(gaps[resource], func(g gap) bool { return g.from < created && created <= g.to }):
				t.Errorf("%s %s (%s), created at %d outside of any gap, is missing", resource, o.Name, o.UID, created)
			case !stored:
				missed++
			}
		}
	}
	t.Logf("%d of %d objects were created and deleted within a gap; gaps: %v", missed, total, gaps)
	if len(gaps) == 0 {
		t.Error("no gap is due to the downtime")
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

// stderr returns the end of what all processes have printed.
func (r *runner) stderr() string {
	text, err := os.ReadFile(r.command.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}
