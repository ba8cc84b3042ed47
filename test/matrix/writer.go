package matrix

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

const (
	writerNames = 30
	writePause  = 20 * time.Millisecond
)

// writer creates, changes and deletes ConfigMaps of one namespace, past the proxy. Only one of its
// methods runs at a time.
type writer struct {
	api       kubernetes.Interface
	namespace string
	maps      typed.ConfigMapInterface
	random    *rand.Rand
	uids      map[string]types.UID // of the objects that exist, by name
}

func newWriter(config *rest.Config, namespace string, seed uint64) (*writer, error) {
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &writer{
		api: api, namespace: namespace, maps: api.CoreV1().ConfigMaps(namespace),
		random: rand.New(rand.NewPCG(seed, 1)), uids: map[string]types.UID{},
	}, nil
}

// prepare creates the namespace and the first objects.
func (w *writer) prepare(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if _, err := w.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range writerNames / 2 {
		if err := w.create(ctx, nameOf(i), map[string]string{"text": strings.Repeat("x", 100)}); err != nil {
			return err
		}
	}
	return w.create(ctx, clients.Last, map[string]string{"done": "no"})
}

// one creates an object if it does not exist, and changes, deletes, or replaces it if it does.
func (w *writer) one(ctx context.Context) error {
	name := nameOf(w.random.IntN(writerNames))
	uid, exists := w.uids[name]
	choice := w.random.IntN(10)
	if exists && choice < 6 {
		return w.patch(ctx, name, fmt.Sprintf(`{"data":{"n":"%d"}}`, w.random.Uint32()))
	}
	if exists {
		if err := w.maps.Delete(ctx, name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
			return err
		}
		delete(w.uids, name)
	}
	if exists && choice < 9 {
		return nil
	}
	return w.create(ctx, name, map[string]string{"text": strings.Repeat("x", 100)})
}

// last is the write that ends a cell.
func (w *writer) last(ctx context.Context) error {
	return w.patch(ctx, clients.Last, `{"data":{"done":"yes"}}`)
}

func (w *writer) create(ctx context.Context, name string, data map[string]string) error {
	made, err := w.maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	w.uids[name] = made.UID
	return nil
}

func (w *writer) patch(ctx context.Context, name, patch string) error {
	_, err := w.maps.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func nameOf(i int) string { return fmt.Sprintf("map-%02d", i) }
