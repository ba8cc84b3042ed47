package clients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	writerNames = 30
	writerPace  = 20 * time.Millisecond
)

// writer creates, changes and deletes ConfigMaps, also while the server is killed: it does
// not repeat a write that fails, and its result is unknown.
type writer struct {
	api    kubernetes.Interface
	maps   typed.ConfigMapInterface
	random *rand.Rand

	mu      sync.Mutex
	done    int             // writes that were answered
	created map[string]bool // UIDs of those that the server answered to have created
	deleted map[string]bool // … and deleted
}

func newWriter(t *testing.T, config *rest.Config, seed uint64) *writer {
	t.Helper()
	config.Timeout = 10 * time.Second
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &writer{
		api: api, maps: api.CoreV1().ConfigMaps(namespace), random: rand.New(rand.NewPCG(seed, 0)),
		created: map[string]bool{}, deleted: map[string]bool{},
	}
}

// prepare creates the namespace and some objects.
func (w *writer) prepare(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := w.api.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	return w.write(ctx, writerNames)
}

// write makes a number of writes, each of which must succeed.
func (w *writer) write(ctx context.Context, n int) error {
	for range n {
		if err := w.one(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writeUntilDone writes until ctx is done, whatever fails. The last write is not canceled: the server could commit it
// after the state was read that the clients are compared with.
func (w *writer) writeUntilDone(ctx context.Context) {
	tick := time.NewTicker(writerPace)
	defer tick.Stop()
	for ctx.Err() == nil {
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		_ = w.one(writing)
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (w *writer) answered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// one creates an object if it isn't there, and changes or deletes it if it is.
func (w *writer) one(ctx context.Context) error {
	name := fmt.Sprintf("map-%02d", w.random.IntN(writerNames))
	is, err := w.maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	switch {
	case len(is.Items) == 0:
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
			Data: map[string]string{"text": strings.Repeat("x", 100)}}
		made, err = w.maps.Create(ctx, made, metav1.CreateOptions{})
		return w.record(err, func() { w.created[string(made.UID)] = true })
	case w.random.IntN(3) == 0:
		uid := is.Items[0].UID
		err = w.maps.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		return w.record(err, func() { w.deleted[string(uid)] = true })
	default:
		patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, w.random.Uint32())
		_, err = w.maps.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return w.record(err, func() {})
	}
}

func (w *writer) record(err error, done func()) error {
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	done()
	return nil
}

// forget clears the records of creations and deletions.
func (w *writer) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.created)
	clear(w.deleted)
}

// elsewhere writes objects of another resource.
func (w *writer) elsewhere(ctx context.Context, n int) error {
	for range n {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
		if _, err := w.api.CoreV1().Secrets(namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// state returns the server's state.
func (w *writer) state(ctx context.Context) (state, error) {
	list, err := w.maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	s := state{}
	for i := range list.Items {
		s[list.Items[i].Name] = stateOf(&list.Items[i])
	}
	return s, nil
}
