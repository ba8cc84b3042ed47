package rawwatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// rate is how many writes a second all writers aim at.
	rate = 500
	// writers is how many write at the same time, each to names of its own.
	writers = 16
	// names is how many objects a writer has in each namespace.
	names = 8
)

var colors = []string{"red", "green", "blue"}

func itemName(i int) string { return fmt.Sprintf("item-%03d", i) }

// churn writes to both resources as fast as possible, whatever the server answers: etcd's
// history shows which writes were committed.
type churn struct {
	client       dynamic.Interface
	acknowledged atomic.Int64
	refused      atomic.Int64
}

func newChurn(config *rest.Config) (*churn, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = rate, rate
	// Without an answer, it is unknown whether the write was committed.
	config.Timeout = 10 * time.Second
	client, err := dynamic.NewForConfig(config)
	return &churn{client: client}, err
}

// write writes to the names of one writer until ctx ends.
func (c *churn) write(ctx context.Context, writer int, random *rand.Rand) {
	r := configMaps
	if writer%4 == 3 {
		r = widgets
	}
	for ctx.Err() == nil {
		namespace := namespaces[random.IntN(len(namespaces))]
		name := itemName(writer + writers*random.IntN(names))
		if err := c.one(ctx, r, namespace, name, random); err == nil {
			c.acknowledged.Add(1)
			continue
		}
		c.refused.Add(1)
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// one does one write. The server may refuse it because of the object's current state.
func (c *churn) one(ctx context.Context, r resource, namespace, name string, random *rand.Rand) error {
	client := c.client.Resource(r.GroupVersionResource).Namespace(namespace)
	switch n := random.IntN(10); {
	case n < 3:
		_, err := client.Create(ctx, item(r, namespace, name, colors[random.IntN(len(colors))]), metav1.CreateOptions{})
		return err
	case n < 6:
		return c.patch(ctx, client, name, fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, random.Uint64()))
	case n < 8:
		return c.patch(ctx, client, name, fmt.Sprintf(`{"metadata":{"labels":{"color":"%s"}}}`,
			colors[random.IntN(len(colors))]))
	}
	return client.Delete(ctx, name, metav1.DeleteOptions{})
}

func (c *churn) patch(ctx context.Context, client dynamic.ResourceInterface, name, patch string) error {
	_, err := client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func item(r resource, namespace, name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": r.kind,
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"color": color}},
	}}
}
