package watchcache

import (
	"unsafe"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
)

// slim returns an object that was deleted long ago with its metadata only. It returns the object itself
// if that is not decoded.
func (c *Cache) slim(o keepwatch.Object) keepwatch.Object {
	full, ok := o.(*Object)
	if !ok || full.content.Load().encoding == encoded { // decoding takes longer than a writer may wait
		return o
	}
	decoded, err := full.Decoded()
	if err != nil {
		return o
	}
	metadata := c.config.NewFunc()
	if err := copyMetadata(metadata, decoded); err != nil {
		return o
	}
	made := *full.content.Load()
	if made.bytes, err = c.marshal(made.encoding, metadata); err != nil {
		return o
	}
	slim := &Object{Object: full.Object, family: c.family, size: int32(len(made.bytes))}
	slim.content.Store(&made)
	slim.unindexed.Store(full.unindexed.Load())
	return slim
}

// attributesOf returns what remains of a state that next has replaced, once that has left the
// history: nil if no selector distinguishes them.
func (c *Cache) attributesOf(prior, next keepwatch.Object) keepwatch.Object {
	was, ok := prior.(*Object)
	if !ok {
		return prior
	}
	if is, ok := next.(*Object); ok && was.content.Load().selectedAs(is.content.Load()) {
		return nil
	}
	slim := c.slim(prior)
	if o, ok := slim.(*Object); ok && o != was {
		o.size += objectBytes
	}
	return slim
}

// objectBytes is the size of an object beside its encoding and the texts that it shares.
// sourceBytes of it are about those of the source's object.
const (
	objectBytes = int32(unsafe.Sizeof(Object{})+unsafe.Sizeof(content{})) + sourceBytes
	sourceBytes = 104
)

func copyMetadata(to, from runtime.Object) error {
	a, err := meta.Accessor(to)
	if err != nil {
		return err
	}
	b, err := meta.Accessor(from)
	if err != nil {
		return err
	}
	setMetadata(a, b)
	return nil
}

func setMetadata(to, from metav1.Object) {
	to.SetNamespace(from.GetNamespace())
	to.SetName(from.GetName())
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetGeneration(from.GetGeneration())
	to.SetCreationTimestamp(from.GetCreationTimestamp())
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	to.SetLabels(from.GetLabels())
	to.SetAnnotations(from.GetAnnotations())
	to.SetOwnerReferences(from.GetOwnerReferences())
}
