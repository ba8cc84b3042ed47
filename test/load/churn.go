package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Pods is the built-in resource of the tests.
var Pods = corev1.SchemeGroupVersion.WithResource("pods")

// Churn writes to a fixed set of names of one resource, for as long as it is
// told to: it creates, updates, moves between labels, deletes, and deletes and
// creates again. It keeps the books of what it did.
type Churn struct {
	Resource  schema.GroupVersionResource
	Namespace string
	Names     int
	Seed      uint64
	// Make is the i-th object as it is created.
	Make func(namespace string, i int) *unstructured.Unstructured

	client dynamic.ResourceInterface
	mu     sync.Mutex
	lives  []Life
}

// Life is one object from its creation on.
type Life struct {
	Name    string
	UID     types.UID
	Created string // resourceVersion
	Deleted bool
}

// writers is how many names are worked on at the same time. A name belongs to one
// writer, so that what it knows of the name is true.
const writers = 8

// Connect says which server to write to. It comes before all else.
func (c *Churn) Connect(config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c.client = client.Resource(c.Resource).Namespace(c.Namespace)
	return nil
}

// Run creates every name and then does a number of random operations.
func (c *Churn) Run(ctx context.Context, operations int) error {
	group, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(c.Seed, uint64(w)))
			alive := map[int]int{} // name → its life
			for i := w; i < c.Names; i += writers {
				if err := c.create(ctx, alive, i); err != nil {
					return err
				}
			}
			for range operations / writers {
				i := w + writers*random.IntN((c.Names-w+writers-1)/writers)
				if err := c.operate(ctx, random, alive, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// Lives is every object that ever was.
func (c *Churn) Lives() []Life {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Life(nil), c.lives...)
}

func (c *Churn) operate(ctx context.Context, random *rand.Rand, alive map[int]int, i int) error {
	if _, ok := alive[i]; !ok {
		return c.create(ctx, alive, i)
	}
	switch n := random.IntN(10); {
	case n < 5:
		return c.patch(ctx, i, fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, random.Uint32()))
	case n < 7:
		return c.patch(ctx, i, fmt.Sprintf(`{"metadata":{"labels":{"color":"%s"}}}`, []string{"red", "green", "blue"}[random.IntN(3)]))
	case n < 9:
		return c.delete(ctx, alive, i)
	}
	if err := c.delete(ctx, alive, i); err != nil {
		return err
	}
	return c.create(ctx, alive, i)
}

func (c *Churn) create(ctx context.Context, alive map[int]int, i int) error {
	o, err := c.client.Create(ctx, c.Make(c.Namespace, i), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	alive[i] = len(c.lives)
	c.lives = append(c.lives, Life{Name: o.GetName(), UID: o.GetUID(), Created: o.GetResourceVersion()})
	return nil
}

func (c *Churn) patch(ctx context.Context, i int, patch string) error {
	name := c.Make(c.Namespace, i).GetName()
	_, err := c.client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (c *Churn) delete(ctx context.Context, alive map[int]int, i int) error {
	now := int64(0)
	name := c.Make(c.Namespace, i).GetName()
	if err := c.client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives[alive[i]].Deleted = true
	delete(alive, i)
	return nil
}

// State is what the server holds of the resource now.
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
			"labels": map[string]any{"color": []string{"red", "green", "blue"}[i%3]},
		},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/main:1"}}},
	}}
}
