package watchcache

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

var (
	_ store.Versioned = (*Object)(nil)
	_ store.Equaler   = (*Object)(nil)
	_ store.Summed    = (*Object)(nil)
)

// Object is one state of an object in a watch cache. It never changes, and any goroutine may use
// it. It is decoded once, at the latest when it is read for the first time: its methods are for
// callers that have it from [Cache.Read].
type Object struct {
	keepwatch.Object // the source's
	family           *family
	size             int32 // of the source's bytes
	// unindexed is true once an index has needed the values of the object when it could not be read.
	unindexed atomic.Bool
	content   atomic.Pointer[content]
	attached  atomic.Pointer[any] // by Attach
}

// content is an object's bytes, and what selectors and indexes use of it. It never changes. An
// encoded object has bytes only.
type content struct {
	encoding       encoding
	failed         error // why decoding failed, if it was tried
	bytes          []byte
	uid            types.UID // the API's
	uidHash        uint64    // for shards
	labels, fields attributes
	indexed        [][]string // the values under which each of Cache.indexes finds it
}

// Version returns the number of the object's writes, or 0 if the source does not number them; see
// store.Versioned.
func (o *Object) Version() int64 {
	if v, ok := o.Object.(store.Versioned); ok {
		return v.Version()
	}
	return 0
}

// Equal reports whether the source's object equals the one of other; see store.Equaler.
func (o *Object) Equal(other keepwatch.Object) bool {
	b, ok := other.(*Object)
	if !ok {
		return false
	}
	a, ok := o.Object.(store.Equaler)
	return ok && a.Equal(b.Object)
}

// Sum returns the hash of the source's object, 0 if it has none; see store.Summed.
func (o *Object) Sum() uint64 {
	if s, ok := o.Object.(store.Summed); ok {
		return s.Sum()
	}
	return 0
}

// Decoded returns the object as a Go value, which is the caller's. Its resourceVersion is set.
func (o *Object) Decoded() (runtime.Object, error) {
	if decoded, err := o.decode(true); decoded != nil || err != nil {
		return decoded, err
	}
	c := o.content.Load()
	decoded, err := o.family.unmarshal(c.encoding, c.bytes, o.Revision())
	if err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.family.config.GroupResource, o.Key(), err)
	}
	return decoded, nil
}

// DecodedOf returns a part of the object's message as a Go value, as Decoded returns the object of the whole message.
func (o *Object) DecodedOf(part []byte) (runtime.Object, error) {
	decoded, err := o.family.unmarshal(message, part, o.Revision())
	if err != nil {
		return nil, fmt.Errorf("decode a part of %s %s: %w", o.family.config.GroupResource, o.Key(), err)
	}
	return decoded, nil
}

// Bytes returns the object as the API serves it: if Protobuf says so the message of its Go type,
// without an envelope, otherwise one JSON value. It returns nil for an object that must be decoded
// to be served, because its Go type is internal to the server, or the source has it in another
// encoding than its kind's. It also returns nil for an object that neither [Cache.Read] nor
// [Cache.ReadDecoded] has returned: the source's bytes may be encrypted. The bytes must not be
// changed.
func (o *Object) Bytes() []byte {
	c := o.content.Load()
	switch c.encoding {
	case message, document, verbatim:
		return c.bytes
	}
	return nil
}

// Protobuf reports whether Bytes returns protobuf.
func (o *Object) Protobuf() bool {
	switch o.content.Load().encoding {
	case message:
		return true
	case verbatim:
		return o.family.verbatimProtobuf
	}
	return false
}

// Labels returns the object's labels.
func (o *Object) Labels() labels.Labels { return &o.content.Load().labels }

// Fields returns the fields that selectors can name.
func (o *Object) Fields() fields.Fields { return &o.content.Load().fields }

// Size returns how many bytes the source has of the object.
func (o *Object) Size() int { return int(o.size) }

// NewObject returns the cache's object of a source's object, whose bytes are value. While the
// cache starts, the object stays encoded: decoding everything takes several times as long as
// reading it, and clients that resume from a revision need almost nothing of it.
func (c *Cache) NewObject(o keepwatch.Object, value []byte) *Object {
	cached := &Object{Object: o, family: c.family, size: int32(len(value))}
	raw := &content{encoding: encoded, bytes: value}
	cached.content.Store(raw)
	if c.caughtUp() {
		_, _ = cached.tryDecode(raw, true) // its readers get the error
	}
	return cached
}

// size returns an object's Size, which the bounds of the history count.
func size(o keepwatch.Object) int {
	if o, ok := o.(*Object); ok {
		return o.Size()
	}
	return 0 // of a deletion
}
