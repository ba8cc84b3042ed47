package etcd

import (
	"hash/maphash"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Object = (*Object)(nil)

// Object is one state of one key in etcd. The Object of a Deleted change has only the
// key and the deletion's revision.
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

// Key returns the storage key without the prefix.
func (o *Object) Key() keepwatch.Key { return o.key }

// UID returns the revision that created the key, in decimal. It distinguishes a key from
// a later one with the same name, whether or not the value can be decoded. It is empty
// for a Deleted change.
func (o *Object) UID() keepwatch.UID { return o.uid }

// Revision returns etcd's ModRevision.
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// Created returns etcd's CreateRevision, and zero for a Deleted change.
func (o *Object) Created() keepwatch.Revision { return o.created }

// Version returns 1 for the write that created the key, and one more for each later
// write. It is zero for a Deleted change, and if the server does not count writes (kine).
func (o *Object) Version() int64 { return o.version }

// Value returns the value in etcd. It is nil if [Options].Decode decoded the value, so
// that memory does not contain it twice. The caller must not change it.
func (o *Object) Value() []byte { return o.value }

// hashSeed is common to all sums of a process, so that they are comparable.
var hashSeed = maphash.MakeSeed()

func sumOf(value []byte) uint64 { return maphash.Bytes(hashSeed, value) }

// Equal reports whether other has the same value; see store.Equaler. It compares 64-bit
// hashes with a seed of the process.
func (o *Object) Equal(other keepwatch.Object) bool {
	raw, ok := other.(interface{ raw() *Object })
	return ok && o.sum == raw.raw().sum
}

// raw returns the Object within an object that embeds it.
func (o *Object) raw() *Object { return o }

// Undecodable is an object for which [Options].Decode returned an error. It is part of
// lists and history like any other object, so that their order is preserved; the readers
// decide what follows from it. Value returns the value.
type Undecodable struct {
	*Object
	// Err is Decode's error, never nil.
	Err error
}

// decode returns the object of a key and its value, nil if the key is not accepted.
func (s *Source) decode(kv *mvccpb.KeyValue) (keepwatch.Object, *keepwatch.Failure) {
	if !s.prefix.covers(kv.Key) || kv.ModRevision <= 0 {
		return nil, keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s: etcd sent key %q at revision %d, which was not requested", s.prefix, kv.Key, kv.ModRevision)
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
			"%s%s at revision %d: Decode must preserve key, UID and revision: embed the *Object it receives", s.prefix, raw.key,
			raw.revision)
	}
	return o, nil
}
