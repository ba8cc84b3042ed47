package etcd

import (
	"hash/maphash"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Object = (*Object)(nil)

// Object is one state of one key as etcd holds it, or the end of its life: that of
// a Deleted change has a key and the deletion's revision, and nothing else.
type Object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	created  keepwatch.Revision
	revision keepwatch.Revision
	version  int64
	sum      uint64 // of the value
	value    []byte
}

func newObject(key keepwatch.Key, kv *mvccpb.KeyValue) *Object {
	return &Object{
		key:      key,
		uid:      keepwatch.UID(strconv.FormatInt(kv.CreateRevision, 10)),
		created:  keepwatch.Revision(kv.CreateRevision),
		revision: keepwatch.Revision(kv.ModRevision),
		version:  kv.Version,
		sum:      sumOf(kv.Value),
		value:    kv.Value,
	}
}

// Key is the storage key without the prefix.
func (o *Object) Key() keepwatch.Key { return o.key }

// UID is the revision that created the key, in decimal: it is what tells one life
// of a key from the next, whether the value can be decoded or not. Empty for a
// Deleted.
func (o *Object) UID() keepwatch.UID { return o.uid }

// Revision is etcd's ModRevision.
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// Created is etcd's CreateRevision; zero for a Deleted.
func (o *Object) Created() keepwatch.Revision { return o.created }

// Version is 1 for the write that created the key, and one more for each that
// followed; zero for a Deleted, and from a server that does not count, such as kine.
func (o *Object) Version() int64 { return o.version }

// Value is what etcd holds. It is nil where [Options].Decode made an object of it,
// so that the bytes are not held twice. It must not be changed.
func (o *Object) Value() []byte { return o.value }

// seed makes the sums of one process comparable.
var hashSeed = maphash.MakeSeed()

func sumOf(value []byte) uint64 { return maphash.Bytes(hashSeed, value) }

// Equal reports whether other has the same value; see store.Equaler. It goes by a
// 64-bit hash that is seeded for each process.
func (o *Object) Equal(other keepwatch.Object) bool {
	raw, ok := other.(interface{ raw() *Object })
	return ok && o.sum == raw.raw().sum
}

// raw finds the Object within one that embeds it.
func (o *Object) raw() *Object { return o }

// Undecodable is an object whose value [Options].Decode refused. It takes its place
// in the history like any other, so that nothing overtakes it; what that means for
// its readers is theirs to say. Value is kept.
type Undecodable struct {
	*Object
	// Err is why. Never nil.
	Err error
}

// decode makes the object to be handed on; nil if its key is not accepted.
func (s *Source) decode(kv *mvccpb.KeyValue) (keepwatch.Object, *keepwatch.Failure) {
	if !s.prefix.covers(kv.Key) || kv.ModRevision <= 0 {
		return nil, keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s: etcd sent key %q at revision %d, which was not asked for", s.prefix, kv.Key, kv.ModRevision)
	}
	key := s.prefix.key(kv.Key)
	if !s.accept(key) {
		return nil, nil
	}
	raw := newObject(key, kv)
	s.lastWrite.record(kv, raw.sum)
	if s.decoder == nil {
		return raw, nil
	}
	raw.value = nil
	o, err := s.decoder(raw, kv.Value)
	if err != nil {
		raw.value = kv.Value
		return &Undecodable{Object: raw, Err: err}, nil
	}
	if o == nil || o.Key() != raw.key || o.UID() != raw.uid || o.Revision() != raw.revision {
		return nil, keepwatch.Failed(keepwatch.InvariantViolation,
			"%s%s at revision %d: Decode must keep key, UID and revision: embed the *Object it is given", s.prefix, raw.key, raw.revision)
	}
	return o, nil
}
