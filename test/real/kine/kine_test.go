// Package kine tests keepwatch serve on kine, which speaks etcd's protocol over a database, and does
// not count the versions of keys.
package kine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

func TestServeOnKine(t *testing.T) {
	for _, backend := range []peer.KineBackend{peer.KineSQLite, peer.KineNATS} {
		t.Run(string(backend), func(t *testing.T) {
			kine := peer.StartKine(t, backend)
			r := &rig{backend: backend, kine: kine, server: peer.Serve(t, "--etcd-servers", string(kine.Endpoint))}
			r.connect(t)
			for _, story := range []struct {
				name string
				run  func(*testing.T)
			}{
				{"burst", r.burst}, {"selectors", r.selectors}, {"quiet", r.quiet}, {"kinds", r.kinds},
				{"restart", r.restart}, {"outage", r.outage},
			} {
				t.Run(story.name, story.run)
			}
		})
	}
}

type rig struct {
	backend peer.KineBackend
	kine    *peer.EtcdServer
	server  *peer.Server
	maps    typed.ConfigMapInterface
	all     *kubernetes.Clientset
}

func (r *rig) connect(t *testing.T) {
	t.Helper()
	var err error
	if r.all, err = kubernetes.NewForConfig(r.server.Config()); err != nil {
		t.Fatal(err)
	}
	r.maps = r.all.CoreV1().ConfigMaps("default")
}

// relists is how often the server has listed a resource again, since it was started.
func (r *rig) relists(t *testing.T) float64 {
	t.Helper()
	m, err := r.server.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m.Sum("keepwatch_storage_relists_total", nil)
}

func (r *rig) create(t *testing.T, name string, labels map[string]string) *corev1.ConfigMap {
	t.Helper()
	made, err := r.maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// patch writes a number.
func (r *rig) patch(t *testing.T, name string, n int) {
	t.Helper()
	if err := r.tryPatch(t.Context(), name, n); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) tryPatch(ctx context.Context, name string, n int) error {
	_, err := r.maps.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n),
		metav1.PatchOptions{})
	return err
}

// watchFrom opens a watch of one object, or of those that a label selects.
func (r *rig) watchFrom(t *testing.T, revision string, options metav1.ListOptions) watch.Interface {
	t.Helper()
	options.ResourceVersion = revision
	w, err := r.maps.Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
}

// wants reads the numbers from first to last off a watch, in order, and returns the last revision.
func wants(t *testing.T, w watch.Interface, first, last int) (revision string) {
	t.Helper()
	timeout := time.After(await.Deadline)
	for n := first; n <= last; n++ {
		select {
		case e, open := <-w.ResultChan():
			m, ok := e.Object.(*corev1.ConfigMap)
			if !open || !ok || e.Type != watch.Modified || m.Data["n"] != strconv.Itoa(n) {
				t.Fatalf("got %v (open: %v), want the change to %d", e, open, n)
			}
			revision = m.ResourceVersion
		case <-timeout:
			t.Fatalf("the change to %d of %d is not delivered", n, last)
		}
	}
	return revision
}

const burst = 200

// burst: a watch receives each of many fast changes, and a read shows a write at once.
func (r *rig) burst(t *testing.T) {
	made := r.create(t, "burst", nil)
	w := r.watchFrom(t, made.ResourceVersion, named("burst"))
	var took []time.Duration
	for n := 1; n <= burst; n++ {
		r.patch(t, "burst", n)
		began := time.Now()
		read, err := r.maps.Get(t.Context(), "burst", metav1.GetOptions{})
		if took = append(took, time.Since(began)); err != nil || read.Data["n"] != strconv.Itoa(n) {
			t.Fatalf("read %v %v after %d was written", read.Data, err, n)
		}
	}
	wants(t, w, 1, burst)
	slices.Sort(took)
	t.Logf("reading after a write: %v at the median, %v at most", took[len(took)/2], took[len(took)-1])
}

// selectors: watches with selectors receive the changes, and do not end because of them.
func (r *rig) selectors(t *testing.T) {
	label := map[string]string{"app": "selected"}
	made := r.create(t, "selected", label)
	r.create(t, "other", map[string]string{"app": "other"})
	byLabel := r.watchFrom(t, made.ResourceVersion, metav1.ListOptions{LabelSelector: "app=selected"})
	byName := r.watchFrom(t, made.ResourceVersion, named("selected"))
	for n := 1; n <= 20; n++ {
		r.patch(t, "other", -n)
		r.patch(t, "selected", n)
	}
	wants(t, byLabel, 1, 20)
	wants(t, byName, 1, 20)
}

// quiet: reads of a resource without changes do not wait for changes of another one.
func (r *rig) quiet(t *testing.T) {
	r.create(t, "loud", nil)
	for n := range 10 {
		r.patch(t, "loud", n)
		began := time.Now()
		if _, err := r.all.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Logf("a consistent list of a quiet resource: %v", time.Since(began))
	}
}

// kinds: writes with leases, preconditions and finalizers, and deletions of whole
// collections. The last takes minutes on NATS, where after a deletion kine reports no
// progress until the next write: kine then answers each consistent read after 3 s.
func (r *rig) kinds(t *testing.T) {
	ctx, core := t.Context(), r.all.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "passing"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"},
		InvolvedObject: corev1.ObjectReference{Namespace: "passing"}}
	if _, err := core.Events("passing").Create(ctx, event, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	secret, err := core.Secrets("passing").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := secret.DeepCopy()
	secret.Labels = map[string]string{"a": "b"}
	if _, err := core.Secrets("passing").Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := core.Secrets("passing").Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old state: %v, want a conflict", err)
	}
	if r.backend == peer.KineNATS {
		if err := core.Secrets("passing").Delete(ctx, "s", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := core.Secrets("passing").Get(ctx, "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a deleted object: %v, want 404", err)
		}
		return
	}
	if err := core.Namespaces().Delete(ctx, "passing", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the namespace is gone", func() error {
		if _, err := core.Namespaces().Get(ctx, "passing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %v", err)
		}
		return nil
	})
}

// restart: a watch resumes without a gap after a restart of the server, if kine has its
// history. With NATS kine has the last ten changes of each object, which is not enough
// after the burst: the server then lists once, logs it, and watches expire.
func (r *rig) restart(t *testing.T) {
	made := r.create(t, "resumed", nil)
	w := r.watchFrom(t, made.ResourceVersion, named("resumed"))
	for n := 1; n <= 10; n++ {
		r.patch(t, "resumed", n)
	}
	revision := wants(t, w, 1, 5) // of ten
	if relists := r.relists(t); relists != 0 {
		t.Errorf("the server has listed again %v times", relists)
	}
	r.server.Kill()
	if err := r.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.connect(t)
	if r.backend == peer.KineNATS {
		r.hasListed(t)
		return
	}
	w = r.watchFrom(t, revision, named("resumed"))
	r.patch(t, "resumed", 11)
	wants(t, w, 6, 11)
	if relists := r.relists(t); relists != 0 {
		t.Errorf("the server has listed again %v times", relists)
	}
	m, err := r.server.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if exact := m.Sum("keepwatch_watch_resumptions_total", peer.Labels{"resource": "configmaps",
		"answer": "exact"}); exact < 1 {
		t.Error("the watch did not go on exactly")
	}
}

// hasListed checks that a list after the first is counted, and in the log with its reason.
func (r *rig) hasListed(t *testing.T) {
	t.Helper()
	if relists := r.relists(t); relists != 1 {
		t.Errorf("the server has listed again %v times, want once", relists)
	}
	log, err := os.ReadFile(r.server.Log())
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(log, []byte("Watch cache lists etcd again")); lines != 1 ||
		!bytes.Contains(log, []byte(`reason="protocol violation"`)) {
		t.Errorf("the log has %d lines of it:\n%s", lines, log)
	}
}

// outage: an open watch continues when kine is available again. With NATS kine has the last ten changes of an object
// by then, so there are no more.
func (r *rig) outage(t *testing.T) {
	made := r.create(t, "outage", nil)
	w := r.watchFrom(t, made.ResourceVersion, named("outage"))
	r.patch(t, "outage", 1)
	wants(t, w, 1, 1)
	r.kine.Kill()
	if err := r.kine.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := 20
	if r.backend == peer.KineNATS {
		last = 10
	}
	for n := 2; n <= last; n++ {
		await.NoError(t, "a write succeeds", func() error { return r.tryPatch(t.Context(), "outage", n) })
	}
	wants(t, w, 2, last)
}
