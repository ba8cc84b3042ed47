package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/history"
)

// informer is an unmodified informer of client-go that follows config maps, with connections of its own, and a record
// of what its handler receives.
type informer struct {
	cache.SharedIndexInformer
	label     string
	namespace string // empty: all
	color     string // the value of a label; empty: any
	listed    atomic.Int64
	watched   atomic.Int64

	mu      sync.Mutex
	changes []keepwatch.Change // after the initial list
	unknown []string           // deletions that the informer learned only from a list
}

// state is one state of an object, as an informer has it.
type state struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
}

func (s state) Key() keepwatch.Key           { return s.key }
func (s state) UID() keepwatch.UID           { return s.uid }
func (s state) Revision() keepwatch.Revision { return s.revision }

func stateOf(m *corev1.ConfigMap) state {
	revision, _ := strconv.ParseUint(m.ResourceVersion, 10, 64)
	return state{keepwatch.Key{Namespace: m.Namespace, Name: m.Name}, keepwatch.UID(m.UID), keepwatch.Revision(revision)}
}

// newInformer returns an informer that is not running yet: every second one reads protobuf, and some have a namespace
// or a label selector.
func newInformer(t testing.TB, config *rest.Config, i int) *informer {
	t.Helper()
	f := &informer{label: fmt.Sprint("informer-", i)}
	switch i % 10 {
	case 3:
		f.namespace = relistNamespaces[0]
	case 6:
		f.color = "red"
	}
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = f.label, -1
	config.Dial = (&net.Dialer{}).DialContext // its own connections
	if i%2 == 1 {
		config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
			"application/vnd.kubernetes.protobuf"
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(next) })
		return counting{next, f}
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	f.SharedIndexInformer = informers.NewFilteredConfigMapInformer(client, f.namespace, 0, nil,
		func(o *metav1.ListOptions) {
			if f.color != "" {
				o.LabelSelector = "color=" + f.color
			}
		})
	if _, err := f.AddEventHandler(f); err != nil {
		t.Fatal(err)
	}
	return f
}

// counting counts the lists and watches that a client sends.
type counting struct {
	http.RoundTripper
	of *informer
}

func (c counting) RoundTrip(q *http.Request) (*http.Response, error) {
	switch query := q.URL.Query(); {
	case query.Get("watch") == "" || query.Get("sendInitialEvents") == "true":
		c.of.listed.Add(1)
	default:
		c.of.watched.Add(1)
	}
	return c.RoundTripper.RoundTrip(q)
}

// OnAdd is called by the informer, as the next two.
func (f *informer) OnAdd(o any, initial bool) {
	if !initial {
		f.add(keepwatch.Added, o.(*corev1.ConfigMap))
	}
}

func (f *informer) OnUpdate(_, o any) { f.add(keepwatch.Modified, o.(*corev1.ConfigMap)) }

func (f *informer) OnDelete(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		f.mu.Lock()
		f.unknown = append(f.unknown, last.Key)
		f.mu.Unlock()
		o = last.Obj
	}
	f.add(keepwatch.Deleted, o.(*corev1.ConfigMap))
}

func (f *informer) add(kind keepwatch.ChangeType, m *corev1.ConfigMap) {
	s := stateOf(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, keepwatch.Change{Type: kind, Revision: s.revision, Object: s})
}

func (f *informer) name() string    { return f.label }
func (f *informer) hasSynced() bool { return f.HasSynced() }
func (f *informer) lists() int      { return int(f.listed.Load()) }
func (f *informer) watches() int    { return int(f.watched.Load()) }

func (f *informer) received() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.changes)
}

// has reports whether the informer's store has an object at a revision or a later one.
func (f *informer) has(key keepwatch.Key, revision keepwatch.Revision) bool {
	o, ok, err := f.GetStore().GetByKey(key.Namespace + "/" + key.Name)
	return err == nil && ok && stateOf(o.(*corev1.ConfigMap)).revision >= revision
}

// filter is the informer's selection.
func (f *informer) filter(o keepwatch.Object) bool {
	return (f.namespace == "" || o.Key().Namespace == f.namespace) &&
		(f.color == "" || o.(*history.Object).Labels["color"] == f.color)
}

// judge returns what the informer has received that differs from the writes after a revision, and from the state at the
// end, and whether it has listed again.
func (f *informer) judge(writes check.History, from keepwatch.Revision) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var wrong []string
	if n := f.lists(); n != 1 {
		wrong = append(wrong, fmt.Sprintf("listed %d times", n))
	}
	for _, key := range f.unknown {
		wrong = append(wrong, "the deletion of "+key+" was noticed by a list")
	}
	t, cursor := check.Transcript{From: from}, from
	for _, c := range f.changes {
		t.Records = append(t.Records, check.Received{Delivery: keepwatch.Batch{From: cursor, To: c.Revision,
			Changes: []keepwatch.Change{c}}})
		cursor = c.Revision
	}
	shown := check.Shown{Revision: writes.Epochs[0].Last}
	for _, o := range f.GetStore().List() {
		shown.Objects = append(shown.Objects, stateOf(o.(*corev1.ConfigMap)))
	}
	t.Records = append(t.Records, shown)
	for _, v := range check.Judge(writes, f.filter, t) {
		wrong = append(wrong, v.String())
	}
	return wrong
}

// relistNamespaces are those of the config maps that informers follow.
var relistNamespaces = []string{"blue-team", "red-team"}

// paintedWriter writes config maps of two namespaces until its context ends, some a second. What the server answers
// does not matter: etcd has what was committed.
type paintedWriter struct {
	client    kubernetes.Interface
	perSecond int
	written   atomic.Int64
}

const paintedMaps = 40 // in each namespace

func paintedName(i int) string { return fmt.Sprintf("map-%02d", i) }

func paintedNames() (all []string) {
	for i := range paintedMaps {
		all = append(all, paintedName(i))
	}
	return all
}

func paintedMap(i, round int) *corev1.ConfigMap {
	color := []string{"red", "green"}[(i+round)%2]
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: paintedName(i), Labels: map[string]string{"color": color}},
		Data:       map[string]string{"round": fmt.Sprint(round), "text": strings.Repeat("x", 200)},
	}
}

func (w *paintedWriter) prepare(ctx context.Context) error {
	for _, namespace := range relistNamespaces {
		if _, err := w.client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		for i := range paintedMaps {
			if _, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, paintedMap(i, 0),
				metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// run changes, repaints, deletes and creates objects until ctx ends, and returns when no write is on its way.
func (w *paintedWriter) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(w.perSecond))
	defer tick.Stop()
	for round := 1; ; round++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		maps, i := w.client.CoreV1().ConfigMaps(relistNamespaces[round%2]), round/2%paintedMaps
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		var err error
		if round%5 == 0 {
			err = maps.Delete(once, paintedName(i), metav1.DeleteOptions{})
		} else if _, err = maps.Update(once, paintedMap(i, round/7), metav1.UpdateOptions{}); err != nil {
			_, err = maps.Create(once, paintedMap(i, round/7), metav1.CreateOptions{})
		}
		cancel()
		if err == nil {
			w.written.Add(1)
		}
	}
}
