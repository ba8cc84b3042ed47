package storage

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// object is what the store holds: one state of an object, decoded.
type Object struct {
	*etcd.Object
	// decoded must not be changed, nor handed to whom might: Get, lists and watches
	// share it.
	decoded runtime.Object
	labels  labels.Set
	fields  fields.Set
	size    int // of the value in etcd, in bytes
}

// decode makes an object of what etcd holds: the one time that this is done.
func (s *Storage) decode(o *etcd.Object, stored []byte) (keepwatch.Object, error) {
	key := s.config.root() + o.Key().String()
	plain, _, err := s.transformer.TransformFromStorage(s.living(), stored, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("unable to transform key %q: %w", key, err)
	}
	decoded, err := runtime.Decode(s.config.Codec, plain)
	if err != nil {
		return nil, err
	}
	if err := s.versioner.UpdateObject(decoded, uint64(o.Revision())); err != nil {
		return nil, fmt.Errorf("unable to set the revision of %q: %w", key, err)
	}
	labelSet, fieldSet, err := s.config.GetAttrs(decoded)
	if err != nil {
		return nil, fmt.Errorf("unable to select by %q: %w", key, err)
	}
	return &Object{Object: o, decoded: decoded, labels: labelSet, fields: fieldSet, size: len(stored)}, nil
}

// read is an object of the store for a reader. What could not be decoded is tried
// again, since the reason may have passed.
func (s *Storage) Read(o keepwatch.Object) (*Object, error) {
	switch o := o.(type) {
	case *Object:
		return o, nil
	case *etcd.Undecodable:
		again, err := s.decode(o.Object, o.Value())
		if err != nil {
			return nil, err
		}
		return again.(*Object), nil
	}
	return nil, fmt.Errorf("a %T in the store", o)
}

// selects reports whether an object matches. One that can't be read does: it is an
// error for whoever reads it.
func selects(p apistorage.SelectionPredicate, o keepwatch.Object) bool {
	known, ok := o.(*Object)
	if !ok {
		return true
	}
	matched, err := p.MatchesSharding(known.decoded)
	return err == nil && matched && p.MatchesObjectAttributes(known.labels, known.fields)
}

// size is what the bounds of the history go by: bytes as etcd stores them.
func size(o keepwatch.Object) int {
	switch o := o.(type) {
	case *Object:
		return o.size
	case *etcd.Undecodable:
		return len(o.Value())
	}
	return 0
}

// slim is what remains of an object that was deleted long ago: its metadata.
func (s *Storage) slim(o keepwatch.Object) keepwatch.Object {
	full, ok := o.(*Object)
	if !ok {
		return o
	}
	slim := *full
	slim.decoded = s.config.NewFunc()
	from, err := meta.Accessor(full.decoded)
	if err != nil {
		return o
	}
	to, err := meta.Accessor(slim.decoded)
	if err != nil {
		return o
	}
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
	return &slim
}

// unread is the value under which each index finds the objects that can't be read:
// a list by a value must not miss them.
const unread = "\x00unread"

// indexes are the API server's index functions as the store's.
func indexes(of cache.Indexers) map[string]store.IndexFunc {
	functions := make(map[string]store.IndexFunc, len(of))
	for name, index := range of {
		functions[name] = func(o keepwatch.Object) []string {
			known, ok := o.(*Object)
			if !ok {
				return []string{unread}
			}
			values, err := index(known.decoded)
			if err != nil {
				return []string{unread}
			}
			return values
		}
	}
	return functions
}
