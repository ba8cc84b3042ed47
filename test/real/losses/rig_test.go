package losses

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// rig is a server, its etcd, and the wire between them.
type rig struct {
	etcd   *peer.EtcdServer
	server *peer.Server
	wire   *wire
	api    kubernetes.Interface
	direct *clientv3.Client // past the server and the wire
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{etcd: peer.StartEtcd(t)}
	r.wire = newWire(t, r.etcd.Endpoint)
	r.server = peer.Serve(t, "--etcd-servers", r.wire.address())
	var err error
	if r.api, err = kubernetes.NewForConfig(r.server.Config()); err != nil {
		t.Fatal(err)
	}
	if r.direct, err = r.etcd.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.direct.Close() })
	return r
}

// namespace is a new one for a test.
func (r *rig) namespace(t *testing.T, name string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := r.api.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// create creates a ConfigMap by the API.
func (r *rig) create(t *testing.T, namespace, name, data string) *corev1.ConfigMap {
	t.Helper()
	made, err := r.api.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(namespace, name, data),
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func configMap(namespace, name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string]string{"data": data}}
}

func key(namespace, name string) string { return "/registry/configmaps/" + namespace + "/" + name }

// put is a write of a ConfigMap to etcd, as an API server makes it. Its UID goes by the
// name.
func put(t *testing.T, namespace, name, data string) clientv3.Op {
	t.Helper()
	o := configMap(namespace, name, data)
	o.APIVersion, o.Kind, o.UID = "v1", "ConfigMap", types.UID("uid-of-"+name)
	value, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), o)
	if err != nil {
		t.Fatal(err)
	}
	return clientv3.OpPut(key(namespace, name), string(value))
}

// commit writes past the server, at one revision.
func (r *rig) commit(t *testing.T, ops ...clientv3.Op) int64 {
	t.Helper()
	answer, err := r.direct.Txn(t.Context()).Then(ops...).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

func (r *rig) compact(t *testing.T) int64 {
	t.Helper()
	revision, err := r.etcd.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func (r *rig) restart(t *testing.T) {
	t.Helper()
	r.server.Kill()
	if err := r.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// follower is one watch, by client-go's unmodified client.
type follower struct{ watch.Interface }

// follow opens a watch at a revision, or with the options in more.
func (r *rig) follow(t *testing.T, namespace, revision string, more ...func(*metav1.ListOptions)) follower {
	t.Helper()
	options := metav1.ListOptions{ResourceVersion: revision}
	for _, set := range more {
		set(&options)
	}
	w, err := r.api.CoreV1().ConfigMaps(namespace).Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return follower{w}
}

// next is the next event.
func (f follower) next(t *testing.T) watch.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	select {
	case event, ok := <-f.ResultChan():
		if !ok {
			t.Fatal("the watch ended without a word")
		}
		return event
	case <-ctx.Done():
		t.Fatal("no event came")
	}
	panic("unreachable")
}

// describe formats an event: its type, the object's name and its data.
func describe(event watch.Event) string {
	switch o := event.Object.(type) {
	case *corev1.ConfigMap:
		return fmt.Sprintf("%s %s/%s=%.40s", event.Type, o.Namespace, o.Name, o.Data["data"])
	case *metav1.Status:
		return fmt.Sprintf("%s %d %s", event.Type, o.Code, o.Reason)
	}
	return fmt.Sprintf("%s %T", event.Type, event.Object)
}

// wants compares the next events.
func (f follower) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := describe(f.next(t)); got != w {
			t.Fatalf("want %s, got %s", w, got)
		}
	}
}

// newest is the revision and the state of a namespace as a LIST shows it, by name.
func (r *rig) newest(t *testing.T, namespace string) (string, map[string]string) {
	t.Helper()
	list, err := r.api.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	for _, o := range list.Items {
		state[o.Name] = o.Data["data"]
	}
	return list.ResourceVersion, state
}
