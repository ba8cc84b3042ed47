package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/test/peer"
)

// World is the state behind the servers: one etcd, some objects of each resource, and
// their history.
type World struct {
	theirs, ours *Side
	comparison   *Comparison
	// written are the resources whose objects change, kinds those that samples added, in each version.
	written, kinds []resource
	etcd           *clientv3.Client
	endpoint       peer.Endpoint
	history        *history
	forget         context.CancelFunc  // ends history
	writers        []dynamic.Interface // theirs, then ours
	random         *rand.Rand

	alive map[string]bool // resource/namespace/name
	// past has the revisions of all writes, ascending, and the revisions at which the servers
	// were compared.
	past []int64
	// origin is the revision from which on both servers have followed every
	// resource, ours since its last start.
	origin int64
	// compacted is the revision to which etcd was compacted.
	compacted int64
	// revision is the newest one.
	revision int64
}

// namespaces with contents. The name of one is a prefix of another's. The last
// stays empty.
var namespaces = []string{"one", "one-more", "two", "three"}

// resource is a resource that is written and requested.
type resource struct {
	group, version, name string
	namespaced           bool
	names                int // in each namespace
	make                 func(namespace string, i int) map[string]any
	change               func(*rand.Rand) patch
	defaults             bool // kube-apiserver sets more of them than serve
	// sample is set for a resource of samples: its objects' names, and the fields of its selectors.
	sample *sampleResource
}

// patch is a merge patch of an object or of its subresource.
type patch struct{ body, subresource string }

func (r resource) root() string {
	if r.group == "" {
		return "/api/" + r.version
	}
	return "/apis/" + r.group + "/" + r.version
}

// collection is the path of all objects, or of those of a namespace.
func (r resource) collection(namespace string) string {
	if namespace == "" {
		return r.root() + "/" + r.name
	}
	return r.root() + "/namespaces/" + namespace + "/" + r.name
}

// object is the name of the i-th object.
func (r resource) object(i int) string {
	if r.sample != nil {
		return r.sample.name(i)
	}
	return objectName(r.name[:len(r.name)-1], i)
}

func objectName(singular string, i int) string { return fmt.Sprintf("%s-%02d", singular, i) }

func (r resource) homes() []string {
	if !r.namespaced {
		return []string{""}
	}
	return namespaces[:3]
}

// write creates, changes or deletes one object of r, and sometimes creates it again.
func (w *World) write(ctx context.Context, r resource) error {
	homes := r.homes()
	namespace, i := homes[w.random.IntN(len(homes))], w.random.IntN(r.names)
	key := r.name + "/" + namespace + "/" + r.object(i)
	client := w.client(r, namespace)
	if !w.alive[key] {
		return w.create(ctx, client, r, namespace, i)
	}
	if w.random.IntN(6) > 0 || r.sample != nil && r.sample.finalized {
		return w.patch(ctx, client, r, i)
	}
	now, background := int64(0), metav1.DeletePropagationBackground
	if err := client.Delete(ctx, r.object(i), metav1.DeleteOptions{GracePeriodSeconds: &now,
		PropagationPolicy: &background}); err != nil {
		if r.sample != nil && refused(err) {
			return nil
		}
		return err
	}
	delete(w.alive, key)
	if w.random.IntN(2) > 0 {
		return nil
	}
	return w.create(ctx, client, r, namespace, i)
}

// client writes through either server, if both write the same.
func (w *World) client(r resource, namespace string) dynamic.ResourceInterface {
	writer := w.writers[0]
	if !r.defaults {
		writer = w.writers[w.random.IntN(len(w.writers))]
	}
	return writer.Resource(r.gvr()).Namespace(namespace)
}

func (w *World) create(ctx context.Context, client dynamic.ResourceInterface, r resource, namespace string,
	i int) error {
	made, err := client.Create(ctx, &unstructured.Unstructured{Object: r.make(namespace, i)}, metav1.CreateOptions{})
	if r.sample != nil {
		if refused(err) {
			return nil
		}
		r.sample.exists = r.sample.exists || err == nil
		r.sample.finalized = r.sample.finalized || err == nil && len(made.GetFinalizers()) > 0
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", r.object(i), err)
	}
	w.alive[r.name+"/"+namespace+"/"+r.object(i)] = true
	return w.recordRevision(made)
}

func (w *World) patch(ctx context.Context, client dynamic.ResourceInterface, r resource, i int) error {
	change := r.change(w.random)
	if w.random.IntN(3) == 0 {
		change = relabel(w.random)
	}
	var subresources []string
	if change.subresource != "" {
		subresources = append(subresources, change.subresource)
	}
	changed, err := client.Patch(ctx, r.object(i), types.MergePatchType, []byte(change.body), metav1.PatchOptions{},
		subresources...)
	if r.sample != nil && refused(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing %s: %w", r.object(i), err)
	}
	return w.recordRevision(changed)
}

func (w *World) recordRevision(o *unstructured.Unstructured) error {
	revision, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	w.past = append(w.past, revision)
	return err
}

// Fill creates all objects.
func (w *World) Fill(ctx context.Context) error {
	for _, name := range namespaces {
		namespace := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
		client := w.writers[0].Resource(namespaceResource.gvr())
		if _, err := client.Create(ctx, &unstructured.Unstructured{Object: namespace}, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, r := range w.written {
		for _, namespace := range r.homes() {
			for i := range r.names {
				if err := w.create(ctx, w.client(r, namespace), r, namespace, i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Change makes n random writes to each resource, mixed.
func (w *World) Change(ctx context.Context, n int) error {
	for range n {
		for _, r := range w.written {
			if r.sample != nil && w.random.IntN(5) > 0 { // there are many of them
				continue
			}
			if err := w.write(ctx, r); err != nil {
				return err
			}
		}
	}
	if len(w.kinds) > 0 {
		return w.putOlder(ctx)
	}
	return nil
}

// Compact removes the history up to now from etcd.
func (w *World) Compact(ctx context.Context) (err error) {
	w.compacted, err = w.endpoint.Compact(ctx)
	return err
}

// Restart restarts ours: its clients resume at their revisions.
func (w *World) Restart(ctx context.Context) error {
	if err := w.ours.server.Restart(ctx); err != nil {
		return err
	}
	if err := w.follows(ctx, w.ours); err != nil {
		return err
	}
	err := w.Settle(ctx)
	w.origin = w.revision
	return err
}

// between is the revisions of the past in [from, to).
func (w *World) between(from, to int64) []int64 {
	i, _ := slices.BinarySearch(w.past, from)
	j, _ := slices.BinarySearch(w.past, to)
	return w.past[min(i, j):j]
}
