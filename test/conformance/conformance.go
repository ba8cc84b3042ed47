// Package conformance tests a server as Kubernetes' own end-to-end tests "Watchers" and
// "Servers with support for API chunking" (v1.36) test a cluster. Each of its tests names
// the one that it corresponds to.
package conformance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// connect makes a namespace of the test's own.
func connect(t *testing.T, server *peer.Server, namespace string) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return client
}

// scene is one test's ConfigMaps.
type scene struct {
	*testing.T
	typed.ConfigMapInterface
}

// scenes gives each test a namespace with ConfigMaps.
func scenes(t *testing.T, server *peer.Server, tests map[string]func(scene)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test(scene{t, connect(t, server, name).CoreV1().ConfigMaps(name)})
		})
	}
}

// create creates a ConfigMap with a value of the label that watches select by.
func (s scene) create(name, label string) *corev1.ConfigMap {
	s.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"watched": label}}}
	return s.done(s.Create(s.Context(), o, metav1.CreateOptions{}))
}

// update sets the label and a datum.
func (s scene) update(o *corev1.ConfigMap, label, mutation string) *corev1.ConfigMap {
	s.Helper()
	o = o.DeepCopy()
	o.Labels["watched"] = label
	o.Data = map[string]string{"mutation": mutation}
	return s.done(s.Update(s.Context(), o, metav1.UpdateOptions{}))
}

func (s scene) remove(name string) {
	s.Helper()
	if err := s.Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s scene) done(o *corev1.ConfigMap, err error) *corev1.ConfigMap {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	return o
}

// follow watches the objects of a selector from a revision.
func (s scene) follow(revision, selector string) follower {
	s.Helper()
	w, err := s.Watch(s.Context(), metav1.ListOptions{ResourceVersion: revision, LabelSelector: selector})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(w.Stop)
	return follower{s.T, w}
}

// follower is a watch.
type follower struct {
	*testing.T
	watch.Interface
}

// next returns the next event, which must be of a ConfigMap.
func (f follower) next() (watch.EventType, *corev1.ConfigMap) {
	f.Helper()
	event := await.Receive(f, "the next event", f.ResultChan())
	o, ok := event.Object.(*corev1.ConfigMap)
	if !ok {
		f.Fatalf("an event %s with %v", event.Type, event.Object)
	}
	return event.Type, o
}

// expect compares the next event: its type, and the object's name and data.
func (f follower) expect(event watch.EventType, name, mutation string) {
	f.Helper()
	if got, o := f.next(); got != event || o.Name != name || o.Data["mutation"] != mutation {
		f.Errorf("want %s of %s with mutation %q, got %s of %s with %q", event, name, mutation, got, o.Name,
			o.Data["mutation"])
	}
}
