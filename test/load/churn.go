package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var colors = []string{"red", "green", "blue"}

// Pods is the built-in resource of the tests.
var Pods = corev1.SchemeGroupVersion.WithResource("pods")

// Churn writes to a fixed set of names of one resource until it is stopped: it creates,
// updates, changes labels, deletes, and deletes and creates again. It records all objects.
type Churn struct {
	Resource  schema.GroupVersionResource
	Namespace string
	Names     int
	Seed      uint64
	// Make is the i-th object as it is created.
	Make func(namespace string, i int) *unstructured.Unstructured
	// Patience bounds how long a write is repeated while the server is down; 0: a write that fails ends the churn. A write
	// whose answer was lost is not done twice.
	Patience time.Duration

	client  dynamic.ResourceInterface
	writers []*writer
	mu      sync.Mutex
	lives   []Record
	newest  uint64 // the newest revision that a write was answered with
	writes  int
}

// writer writes to its own share of the names, so its state of a name is exact: names i
// with i % writers == its number.
type writer struct {
	*Churn
	number int
	random *rand.Rand
	alive  map[int]int // name → its record
}

// Record is one object from its creation on.
type Record struct {
	Name    string
	UID     types.UID
	Created string // resourceVersion
	Deleted bool
	// LastSeen is, of a deleted object, the newest revision that any write was answered with before the deletion was
	// requested: the object existed at it.
	LastSeen uint64
}

// writers is how many names are worked on at the same time.
const writers = 8

// Connect sets the server to write to. It must be called first.
func (c *Churn) Connect(config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c.client = client.Resource(c.Resource).Namespace(c.Namespace)
	return nil
}

// Create creates every name.
func (c *Churn) Create(ctx context.Context) error {
	for w := range writers {
		c.writers = append(c.writers, &writer{
			Churn: c, number: w, random: rand.New(rand.NewPCG(c.Seed, uint64(w))), alive: map[int]int{},
		})
	}
	return c.each(ctx, func(ctx context.Context, w *writer) error {
		for i := w.number; i < c.Names; i += writers {
			if err := w.create(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// Run does a number of random operations. Create must have run before.
func (c *Churn) Run(ctx context.Context, operations int) error {
	return c.each(ctx, func(ctx context.Context, w *writer) error {
		names := (c.Names - w.number + writers - 1) / writers
		for range operations / writers {
			if err := w.operate(ctx, w.number+writers*w.random.IntN(names)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Churn) each(ctx context.Context, work func(context.Context, *writer) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range c.writers {
		group.Go(func() error { return work(ctx, w) })
	}
	return group.Wait()
}

// Records returns every object that ever existed.
func (c *Churn) Records() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Record(nil), c.lives...)
}

func (w *writer) operate(ctx context.Context, i int) error {
	if _, ok := w.alive[i]; !ok {
		return w.create(ctx, i)
	}
	switch n := w.random.IntN(10); {
	case n < 5:
		return w.patch(ctx, i, fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, w.random.Uint32()))
	case n < 7:
		return w.patch(ctx, i, fmt.Sprintf(`{"metadata":{"labels":{"color":"%s"}}}`, colors[w.random.IntN(len(colors))]))
	case n < 9:
		return w.delete(ctx, i)
	}
	if err := w.delete(ctx, i); err != nil {
		return err
	}
	return w.create(ctx, i)
}

func (w *writer) create(ctx context.Context, i int) error {
	wanted := w.Make(w.Namespace, i)
	var o *unstructured.Unstructured
	err := w.repeat(ctx, func(again bool) (err error) {
		if o, err = w.client.Create(ctx, wanted, metav1.CreateOptions{}); again && apierrors.IsAlreadyExists(err) {
			o, err = w.client.Get(ctx, wanted.GetName(), metav1.GetOptions{}) // the name is this writer's alone
		}
		return err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alive[i] = len(w.lives)
	w.lives = append(w.lives, Record{Name: o.GetName(), UID: o.GetUID(), Created: o.GetResourceVersion()})
	return w.see(o)
}

// Writes returns how many writes were answered.
func (c *Churn) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// see records the revision of an answer. The caller holds mu.
func (c *Churn) see(answer *unstructured.Unstructured) error {
	c.writes++
	revision, err := strconv.ParseUint(answer.GetResourceVersion(), 10, 64)
	c.newest = max(c.newest, revision)
	return err
}

func (w *writer) patch(ctx context.Context, i int, patch string) error {
	name := w.Make(w.Namespace, i).GetName()
	var o *unstructured.Unstructured
	err := w.repeat(ctx, func(bool) (err error) {
		o, err = w.client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.see(o)
}

func (w *writer) delete(ctx context.Context, i int) error {
	now := int64(0)
	name := w.Make(w.Namespace, i).GetName()
	w.mu.Lock()
	seen := w.newest
	w.mu.Unlock()
	err := w.repeat(ctx, func(again bool) error {
		err := w.client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if again && isGone(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	record := &w.lives[w.alive[i]]
	record.Deleted, record.LastSeen = true, seen
	w.writes++
	delete(w.alive, i)
	return nil
}

// repeat writes until that succeeds, or has failed for as long as Patience says. again is true if an earlier attempt
// may have succeeded.
func (c *Churn) repeat(ctx context.Context, write func(again bool) error) error {
	end := time.Now().Add(c.Patience)
	for again := false; ; again = true {
		err := write(again)
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// isGone reports whether the server has no such object. A server that starts may not know the path, either.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// State returns the server's current objects of the resource.
func (c *Churn) State(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	list, err := c.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	state := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		state[list.Items[i].GetNamespace()+"/"+list.Items[i].GetName()] = &list.Items[i]
	}
	return state, nil
}

// SmallPod is a pod with one container, not bound to a node, so that a delete
// needs no kubelet.
func SmallPod(namespace string, i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": namespace, "name": fmt.Sprintf("pod-%05d", i),
			"labels": map[string]any{"color": colors[i%len(colors)]},
		},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/main:1"}}},
	}}
}
