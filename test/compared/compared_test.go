package compared

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	restartsFlag = flag.Int("compared.restarts", 0, "how often the tools are killed; 0 skips the run")
	changesFlag  = flag.Int("compared.changes", 400, "how many changes there are for each restart")
	exporterFlag = flag.String("compared.exporter", "",
		"compare kubernetes-event-exporter, too: the path of this program, which the module proxy does not serve")
	otelFlag = flag.String("compared.otelcol", "",
		"compare a newer collector, without and with checkpoints: the path of a program "+
			"with k8sobjects, file_storage and the file exporter; the module proxy serves k8sobjects until v0.111.0 only")
	expiredFlag = flag.Int("compared.expired", 0,
		"after how many restarts of the tools the server has lost its history; 0 is never")
	seedFlag = flag.Uint64("compared.seed", 1, "draws the changes")
)

const (
	// serverEvery is after how many restarts of the tools the API server is restarted, too.
	serverEvery = 4
	// settle bounds the wait for a tool that may never receive the last change.
	settle = time.Minute
)

func TestMain(m *testing.M) { peer.Main(m) }

// TestCompared kills the tools while Events change, and starts each again after further changes. It prints a table, and
// fails if keepwatch sync has lost a change outside of a gap that it has declared, or a deletion anywhere.
func TestCompared(t *testing.T) {
	if *restartsFlag == 0 {
		t.Skip("the comparison with other tools is NOT run: it needs -compared.restarts, as make compared has it")
	}
	r := newRun(t)
	tools := []*tool{keepwatch(t, r.server.Kubeconfig())}
	if *otelFlag == "" {
		tools = append(tools, otel(t, peer.Build(t, peer.OpenTelemetry), r.server.Kubeconfig(), false))
	} else {
		tools = append(tools, otel(t, *otelFlag, r.server.Kubeconfig(), false), otel(t, *otelFlag, r.server.Kubeconfig(),
			true))
	}
	if *exporterFlag != "" {
		tools = append(tools, eventExporter(t, *exporterFlag, r.server.Kubeconfig()))
	}
	for _, tool := range tools {
		tool.start(t)
		r.follows(tool)
	}
	r.from = r.write("begin")
	if err := r.churn.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range *restartsFlag {
		half := r.changes() + *changesFlag/2
		burst := make(chan error, 1)
		go func() { burst <- r.churn.Run(t.Context(), *changesFlag) }()
		for r.changes() < half && len(burst) == 0 {
			time.Sleep(5 * time.Millisecond) // between two looks at the history
		}
		for _, tool := range tools {
			tool.kill()
		}
		if err := <-burst; err != nil {
			t.Fatal(err)
		}
		if *expiredFlag > 0 && n%*expiredFlag == *expiredFlag-1 {
			if _, err := r.server.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n%serverEvery == serverEvery-1 {
			r.server.Kill()
			if err := r.server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, tool := range tools {
			tool.start(t)
		}
	}
	if err := r.churn.Run(t.Context(), *changesFlag); err != nil {
		t.Fatal(err)
	}
	last := r.write("end")
	table := fmt.Sprintf("%-42s %8s %8s %10s %14s %9s %8s %8s\n", "", "changes", "lost", "in a gap", "deletions lost",
		"repeated", "CPU s", "peak MB")
	for _, tool := range tools {
		arrived := r.await(tool, last)
		tool.kill()
		table += r.judge(tool, arrived)
	}
	t.Logf("%d restarts, %d of them with the API server's\n%s", *restartsFlag, *restartsFlag/serverEvery, table)
}

// run is a server whose Events change, with its history.
type run struct {
	t      *testing.T
	server *peer.Server
	client kubernetes.Interface
	churn  *load.Churn

	from int64 // the revision above which all tools followed

	mu     sync.Mutex
	states []int64 // revisions at which etcd stored a state
	gone   int     // deletions in etcd
}

func newRun(t *testing.T) *run {
	r := &run{t: t, server: peer.Kubernetes(t)}
	var err error
	if r.client, err = kubernetes.NewForConfig(r.server.Config()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.churn = &load.Churn{
		Resource: corev1.SchemeGroupVersion.WithResource("events"), Namespace: namespace, Names: 100, Seed: *seedFlag,
		Make: func(namespace string, i int) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"namespace": namespace,
					"name": fmt.Sprintf("o-%05d", i)},
				"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "web-0"},
				"reason":         "Compared", "message": strings.Repeat("x", 1000),
				"lastTimestamp": time.Now().UTC().Format(time.RFC3339),
			}}
		},
	}
	if err := r.churn.Connect(r.server.Config()); err != nil {
		t.Fatal(err)
	}
	etcd, err := r.server.Etcd().Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	history := etcd.Watch(clientv3.WithRequireLeader(t.Context()), "/registry/events/"+namespace+"/",
		clientv3.WithPrefix())
	go func() {
		for response := range history {
			r.record(response.Events)
		}
	}()
	return r
}

func (r *run) record(events []*clientv3.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if e.Type == clientv3.EventTypeDelete {
			r.gone++
		} else {
			r.states = append(r.states, e.Kv.ModRevision)
		}
	}
}

func (r *run) changes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.states) + r.gone
}

// write creates an Event, or updates it, and returns its revision.
func (r *run) write(name string) int64 {
	r.t.Helper()
	o := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{Namespace: namespace},
		Message:        time.Now().String(), LastTimestamp: metav1.Now(),
	}
	events := r.client.CoreV1().Events(namespace)
	stored, err := events.Create(r.t.Context(), o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		stored, err = events.Update(r.t.Context(), o, metav1.UpdateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	revision, err := strconv.ParseInt(stored.ResourceVersion, 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return revision
}

// follows writes until a tool has written a state: from then on it follows.
func (r *run) follows(tool *tool) {
	r.t.Helper()
	for end := time.Now().Add(await.Deadline); ; time.Sleep(100 * time.Millisecond) {
		r.write("begin")
		if w, err := tool.read(); err == nil && len(w.states) > 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s writes nothing", tool.name)
		}
	}
}

// await waits until a tool has written the state of a revision, and reports whether it has.
func (r *run) await(tool *tool, revision int64) bool {
	for end := time.Now().Add(settle); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if w, err := tool.read(); err == nil && w.states[strconv.FormatInt(revision, 10)] > 0 {
			return true
		}
	}
	return false
}

// judge returns the row of a tool.
func (r *run) judge(tool *tool, arrived bool) string {
	r.t.Helper()
	w, err := tool.read()
	if err != nil {
		r.t.Fatalf("%s: %v", tool.name, err)
	}
	if tool.onlyNew {
		return r.judgeNew(tool, w)
	}
	lost, within, deletions := 0, 0, 0
	r.mu.Lock()
	defer r.mu.Unlock()
	states := 0
	for _, revision := range r.states {
		if revision <= r.from {
			continue
		}
		states++
		switch {
		case w.states[strconv.FormatInt(revision, 10)] > 0:
		case inGap(w.gaps, revision):
			within++
		default:
			lost++
		}
	}
	for _, o := range r.churn.Records() {
		if o.Deleted && w.deleted[string(o.UID)] == 0 {
			created, err := strconv.ParseInt(o.Created, 10, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			if inGap(w.gaps, created) {
				within++ // it was created and deleted within the gap, or its creation is missing, too
			} else {
				deletions++
			}
		}
	}
	if len(w.gaps) > 0 {
		r.t.Logf("%s has declared the gaps %v", tool.name, w.gaps)
	}
	if strings.HasPrefix(tool.name, "keepwatch") && (lost > 0 || deletions > 0 || !arrived) {
		r.t.Errorf("%s has lost %d states and %d deletions; the last change has arrived: %v", tool.name, lost, deletions,
			arrived)
	}
	return fmt.Sprintf("%-42s %8d %8d %10d %14d %9d %8.1f %8d\n", tool.name, states+r.gone, lost, within, deletions,
		w.repeated(false), tool.cpu.Seconds(), tool.peak>>20)
}

// judgeNew returns the row of a tool that writes new objects only.
func (r *run) judgeNew(tool *tool, w *written) string {
	lost := 0
	objects := r.churn.Records()
	for _, o := range objects {
		if w.objects[string(o.UID)] == 0 {
			lost++
		}
	}
	return fmt.Sprintf("%-42s %8d %8d %10s %14s %9d %8.1f %8d\n", tool.name+" (new)", len(objects), lost, "-", "-",
		w.repeated(true), tool.cpu.Seconds(), tool.peak>>20)
}

func inGap(gaps []gap, revision int64) bool {
	for _, g := range gaps {
		if g.from < revision && revision <= g.to {
			return true
		}
	}
	return false
}
