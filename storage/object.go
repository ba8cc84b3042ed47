package storage

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/etcd"
)

// Object is what the store holds: one state of an object that can be read. It was
// decoded once, when it came, and is kept encoded together with what selectors and
// indexes ask of it. It never changes, and may be used by any goroutine.
type Object struct {
	*etcd.Object
	storage        *Storage
	form           form
	bytes          []byte
	uid            types.UID // the API's
	labels, fields attributes
	indexed        [][]string // the values under which each of Storage.indexes finds it
	size           int        // of the value in etcd, in bytes
	kept           [Forms]atomic.Pointer[encoded]
}

// Decoded is the object, which is the caller's. Its resourceVersion is set.
func (o *Object) Decoded() (runtime.Object, error) {
	decoded, err := o.storage.unpack(o.form, o.bytes, o.Revision())
	if err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.storage.config.GroupResource, o.Key(), err)
	}
	return decoded, nil
}

// Bytes is the object as the API serves it: as Protobuf says the message of its Go
// type, without an envelope, or one JSON value. It is nil for an object that has to
// be decoded to be served: if its Go type is internal to the server, or etcd has it in
// another encoding than its kind's. It must not be changed.
func (o *Object) Bytes() []byte {
	if o.form == stored {
		return nil
	}
	return o.bytes
}

// Protobuf reports whether Bytes is protobuf.
func (o *Object) Protobuf() bool { return o.form == message }

// Labels are the object's.
func (o *Object) Labels() labels.Labels { return &o.labels }

// Fields are those that selectors can name.
func (o *Object) Fields() fields.Fields { return &o.fields }

// decode makes an object of what etcd holds: the one time that conversion, defaults
// and whatever else the codec does are applied.
func (s *Storage) decode(o *etcd.Object, value []byte) (keepwatch.Object, error) {
	key := s.config.root() + o.Key().String()
	plain, err := s.decrypt(key, value)
	if err != nil {
		return nil, err
	}
	decoded, err := s.unpack(stored, plain, o.Revision())
	if err != nil {
		return nil, err
	}
	made, err := s.describe(o, decoded)
	if err != nil {
		return nil, fmt.Errorf("unable to select by %q: %w", key, err)
	}
	made.size, made.form, made.bytes = len(value), s.formOf(decoded, plain), plain
	if made.form != stored {
		if made.bytes, err = s.pack(made.form, decoded); err != nil {
			return nil, fmt.Errorf("unable to keep %q: %w", key, err)
		}
	}
	return made, nil
}

func (s *Storage) decrypt(key string, stored []byte) ([]byte, error) {
	plain, _, err := s.transformer.TransformFromStorage(s.living(), stored, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("unable to transform key %q: %w", key, err)
	}
	return plain, nil
}

// describe is an object without its bytes.
func (s *Storage) describe(o *etcd.Object, decoded runtime.Object) (*Object, error) {
	labelSet, fieldSet, err := s.config.GetAttrs(decoded)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(decoded)
	if err != nil {
		return nil, err
	}
	return &Object{
		Object: o, storage: s, uid: m.GetUID(),
		labels: s.interner.attributes(o.Key(), labelSet), fields: s.interner.attributes(o.Key(), fieldSet),
		indexed: s.indexed(o.Key(), decoded),
	}, nil
}

// Read is an object of the store for a reader. What could not be decoded is tried
// again, since the reason may have passed: a key server that was away, for example.
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
	return p.Label.Matches(&known.labels) && p.Field.Matches(&known.fields) && inShard(p, known)
}

// inShard reports whether an object is in the shard that is asked for. Shards go by
// UID and namespace and nothing else (KEP-5866).
func inShard(p apistorage.SelectionPredicate, o *Object) bool {
	if p.ShardSelector == nil || p.ShardSelector.Empty() {
		return true
	}
	in, err := p.MatchesSharding(&metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Key().Namespace, UID: o.uid},
	})
	return err == nil && in
}

// held is how many bytes the store keeps of an object: what the bounds of the
// history go by.
func held(o keepwatch.Object) int {
	switch o := o.(type) {
	case *Object:
		return len(o.bytes)
	case *etcd.Undecodable:
		return len(o.Value())
	}
	return 0
}

// size is how many bytes etcd keeps of an object.
func size(o keepwatch.Object) int {
	if o, ok := o.(*Object); ok {
		return o.size
	}
	return held(o)
}
