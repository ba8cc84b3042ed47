package storage

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
)

// slim is what remains of an object that was deleted long ago: its metadata. If that
// can't be had, it is the object.
func (s *Storage) slim(o keepwatch.Object) keepwatch.Object {
	full, ok := o.(*Object)
	if !ok {
		return o
	}
	decoded, err := full.Decoded()
	if err != nil {
		return o
	}
	rest := s.config.NewFunc()
	if err := copyMetadata(rest, decoded); err != nil {
		return o
	}
	packed, err := s.pack(full.form, rest)
	if err != nil {
		return o
	}
	return &Object{
		Object: full.Object, storage: s, form: full.form, bytes: packed, uid: full.uid,
		labels: full.labels, fields: full.fields, indexed: full.indexed, size: full.size,
	}
}

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
