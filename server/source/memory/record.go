package memory

import (
	"bytes"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

var (
	_ keepwatch.Object = (*record)(nil)
	_ store.Versioned  = (*record)(nil)
	_ keepwatch.Object = (*Object)(nil)
	_ store.Versioned  = (*Object)(nil)
	_ store.Equaler    = (*Object)(nil)
)

// record is one state of one key, as the tree of a [DB] has it. It never changes.
type record struct {
	bucket   bucket
	name     string // the key without the bucket's prefix: "/namespace/name"
	slash    int32  // the index in name of the slash behind the namespace, 0 if there is no namespace
	uid      keepwatch.UID
	created  keepwatch.Revision
	revision keepwatch.Revision
	version  int64
	lease    clientv3.LeaseID
	value    []byte
}

// Key returns the key in the tree of all resources.
func (r *record) Key() keepwatch.Key { return keepwatch.Key{Namespace: string(r.bucket), Name: r.name} }

// UID returns the revision that created the key, in decimal.
func (r *record) UID() keepwatch.UID { return r.uid }

// Revision returns the revision of the last write.
func (r *record) Revision() keepwatch.Revision { return r.revision }

// Version returns the number of writes since the key was created.
func (r *record) Version() int64 { return r.version }

// next returns the state after a write at a revision; r is nil if the key does not exist.
func (r *record) next(b bucket, name string, value []byte, lease clientv3.LeaseID, at keepwatch.Revision) *record {
	next := &record{bucket: b, name: name, slash: slashOf(name), created: at, revision: at, version: 1, lease: lease,
		value: value}
	if r != nil {
		next.name, next.uid, next.created, next.version = r.name, r.uid, r.created, r.version+1
		return next
	}
	next.uid = keepwatch.UID(strconv.FormatUint(uint64(at), 10))
	return next
}

// modRevision returns the revision of the last write, zero if the key does not exist.
func (r *record) modRevision() int64 {
	if r == nil {
		return 0
	}
	return int64(r.revision)
}

// keyValue returns the state as etcd's API has it, nil if the key does not exist. The value is shared.
func (r *record) keyValue(prefix string) *mvccpb.KeyValue {
	if r == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: []byte(prefix + r.name), Value: r.value, Version: r.version, Lease: int64(r.lease),
		CreateRevision: int64(r.created), ModRevision: int64(r.revision),
	}
}

// recordBytes estimates the memory of a record without its value and its name.
const recordBytes = 256

// sizeOf returns the bytes that count against the bounds of the history.
func sizeOf(o keepwatch.Object) int {
	r := o.(*record)
	return recordBytes + len(r.name) + len(r.value)
}

// Object is one state of one key, as a [Source] of its resource delivers it. The Object of a Deleted change
// has only the key and the deletion's revision.
type Object record

// Key returns the key below the prefix: "namespace/name", or the name alone.
func (o *Object) Key() keepwatch.Key {
	if o.slash == 0 {
		return keepwatch.Key{Name: o.name[1:]}
	}
	return keepwatch.Key{Namespace: o.name[1:o.slash], Name: o.name[o.slash+1:]}
}

// slashOf returns record.slash of a name. A name without both a namespace and a name below it has none: it is one
// key's name as it is.
func slashOf(name string) int32 {
	namespace, below, _ := strings.Cut(name[1:], "/")
	if namespace == "" || below == "" {
		return 0
	}
	return int32(1 + len(namespace))
}

// UID returns the revision that created the key, in decimal, as source/etcd does. It is empty for a
// Deleted change.
func (o *Object) UID() keepwatch.UID { return o.uid }

// Revision returns the revision of the last write.
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// Created returns the revision that created the key, and zero for a Deleted change.
func (o *Object) Created() keepwatch.Revision { return o.created }

// Version returns 1 for the write that created the key, and one more for each later write. It is zero for a
// Deleted change.
func (o *Object) Version() int64 { return o.version }

// Value returns the stored bytes, nil for a Deleted change. They must not be changed.
func (o *Object) Value() []byte { return o.value }

// Equal reports whether other has the same value; see store.Equaler.
func (o *Object) Equal(other keepwatch.Object) bool {
	b, ok := other.(*Object)
	return ok && bytes.Equal(o.value, b.value)
}
