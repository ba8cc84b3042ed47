package watchcache

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

var (
	_ store.Versioned = (*Object)(nil)
	_ store.Equaler   = (*Object)(nil)
)

// Object is one state of an object in a watch cache. It never changes, and any goroutine may use
// it. It is decoded once, at the latest when it is read for the first time: its methods are for
// callers that have it from [Cache.Read].
type Object struct {
	keepwatch.Object // the source's
	cache            *Cache
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

// Decoded returns the object as a Go value, which is the caller's. Its resourceVersion is set.
func (o *Object) Decoded() (runtime.Object, error) {
	if decoded, err := o.decode(true); decoded != nil || err != nil {
		return decoded, err
	}
	c := o.content.Load()
	decoded, err := o.cache.unmarshal(c.encoding, c.bytes, o.Revision())
	if err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.cache.config.GroupResource, o.Key(), err)
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
	if c.encoding != message && c.encoding != document {
		return nil
	}
	return c.bytes
}

// Protobuf reports whether Bytes returns protobuf.
func (o *Object) Protobuf() bool { return o.content.Load().encoding == message }

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
	cached := &Object{Object: o, cache: c, size: int32(len(value))}
	raw := &content{encoding: encoded, bytes: value}
	cached.content.Store(raw)
	if c.caughtUp() {
		_, _ = cached.tryDecode(raw, true) // its readers get the error
	}
	return cached
}

// decode decodes the object, unless it is decoded. It tries an object that could not be decoded
// again each time, since the reason may have passed: an unavailable key server, for example. If
// this call has decoded the object, it returns the Go value, which is the caller's. If whole is
// false, the object's message may be left to be made later.
func (o *Object) decode(whole bool) (runtime.Object, error) {
	c := o.content.Load()
	switch {
	case c.decoded(whole):
		return nil, nil
	case c.failed != nil:
		return o.tryDecode(c, whole)
	}
	lock := &o.cache.decoding[maphash.Comparable(o.cache.seed, o.Key())%uint64(len(o.cache.decoding))]
	lock.Lock()
	defer lock.Unlock()
	if c = o.content.Load(); c.decoded(whole) || c.failed != nil {
		return nil, c.failed // as for the goroutine that did it meanwhile
	}
	if c.encoding == pending {
		return o.makeMessage(c)
	}
	return o.tryDecode(c, whole)
}

func (c *content) decoded(whole bool) bool {
	return c.encoding != encoded && (c.encoding != pending || !whole)
}

// tryDecode decodes c. A decoded object stays decoded if another goroutine fails.
func (o *Object) tryDecode(c *content, whole bool) (runtime.Object, error) {
	made, decoded, err := o.cache.decodeContent(o.Object, c.bytes, whole)
	if err != nil {
		o.content.CompareAndSwap(c, &content{encoding: encoded, failed: err, bytes: c.bytes})
		return nil, err
	}
	for {
		now := o.content.Load()
		if now.encoding != encoded || o.content.CompareAndSwap(now, made) {
			return decoded, nil
		}
	}
}

// makeMessage makes the message of a pending object. It returns the object's Go value.
func (o *Object) makeMessage(c *content) (runtime.Object, error) {
	decoded, err := o.cache.unmarshal(pending, c.bytes, o.Revision())
	if err != nil {
		return nil, err
	}
	made := *c
	made.encoding = message
	if made.bytes, err = o.cache.marshal(message, decoded); err != nil {
		return nil, err
	}
	o.content.CompareAndSwap(c, &made)
	return decoded, nil
}

// decodeContent decodes the source's bytes. Conversion, defaults and whatever else the codec does
// are applied here, and a second time by makeMessage if the object need not be whole. It fails if the
// object's name and namespace must be those of its key and are not: nothing in a database like etcd's
// would notice that a bit of them was flipped.
func (c *Cache) decodeContent(o keepwatch.Object, value []byte, whole bool) (made *content, decoded runtime.Object, err error) {
	plain := value
	if c.config.Decrypt != nil {
		if plain, err = c.config.Decrypt(c.runContext(), o.Key(), value); err != nil {
			return nil, nil, err
		}
	}
	if decoded, err = c.unmarshal(fromSource, plain, o.Revision()); err != nil {
		return nil, nil, err
	}
	m, err := meta.Accessor(decoded)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to name %q: %w", c.sourceKey(o), err)
	}
	if c.config.CheckNames && (m.GetNamespace() != o.Key().Namespace || m.GetName() != o.Key().Name) {
		return nil, nil, &misplaced{c.sourceKey(o)}
	}
	if made, err = c.describe(o.Key(), decoded); err != nil {
		return nil, nil, fmt.Errorf("unable to select by %q: %w", c.sourceKey(o), err)
	}
	made.uid = m.GetUID()
	made.encoding, made.bytes = c.encodingOf(decoded, plain), plain
	if made.encoding == message && !whole {
		made.encoding = pending
		return made, decoded, nil
	}
	if made.encoding != fromSource {
		if made.bytes, err = c.marshal(made.encoding, decoded); err != nil {
			return nil, nil, fmt.Errorf("unable to cache %q: %w", c.sourceKey(o), err)
		}
	}
	return made, decoded, nil
}

// sourceKey returns the source's key of an object, for messages.
func (c *Cache) sourceKey(o keepwatch.Object) string { return c.config.SourcePrefix + o.Key().String() }

// misplaced is the error of an object whose name or namespace is not that of its key.
type misplaced struct{ key string }

func (e *misplaced) Error() string {
	return fmt.Sprintf("the object at %q is damaged: its name or namespace is not that of its key", e.key)
}

// notCached returns the error of a read that meets an object which can't be read: ErrNotCached, since
// the source reports the error, and lists what it can. The source would show a misplaced object.
func notCached(err error) error {
	if of := (*misplaced)(nil); errors.As(err, &of) {
		return apistorage.NewInternalError(of)
	}
	return ErrNotCached
}

// describe returns a content without its bytes and its UID.
func (c *Cache) describe(key keepwatch.Key, decoded runtime.Object) (*content, error) {
	labelSet, fieldSet, err := c.config.GetAttrs(decoded)
	if err != nil {
		return nil, err
	}
	return &content{
		labels: c.interner.attributes(key, labelSet), fields: c.interner.attributes(key, fieldSet),
		indexed: c.indexed(key, decoded),
	}, nil
}

// Read returns an object of a snapshot for a reader, decoded before if it was not. It fails if
// the source's bytes can't be decoded or decrypted, but may succeed the next time.
func (c *Cache) Read(o keepwatch.Object) (*Object, error) {
	cached, _, err := c.ReadDecoded(o)
	return cached, err
}

// ReadDecoded is Read. If this call has decoded the object, it also returns the Go value, which is
// the caller's: [Object.Decoded] would decode it once more.
func (c *Cache) ReadDecoded(o keepwatch.Object) (cached *Object, decoded runtime.Object, err error) {
	return c.decode(o, true)
}

// Decode is ReadDecoded for a reader that does not need protobuf. It makes no message of an object
// that the cache read while it started: the first call of ReadDecoded does, or the background.
func (c *Cache) Decode(o keepwatch.Object) (cached *Object, decoded runtime.Object, err error) {
	return c.decode(o, false)
}

func (c *Cache) decode(o keepwatch.Object, whole bool) (cached *Object, decoded runtime.Object, err error) {
	cached, ok := o.(*Object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T in the watch cache", o)
	}
	if decoded, err = cached.decode(whole); err != nil {
		return nil, nil, err
	}
	return cached, decoded, nil
}

// matches reports whether a decoded object matches.
func (o *Object) matches(p apistorage.SelectionPredicate) bool {
	c := o.content.Load()
	return p.Label.Matches(&c.labels) && p.Field.Matches(&c.fields) && inShard(p, o.Key(), c)
}

// inShard reports whether an object is in the shard that a predicate selects. Shards depend on
// UID and namespace only (KEP-5866).
func inShard(p apistorage.SelectionPredicate, key keepwatch.Key, c *content) bool {
	if p.ShardSelector == nil || p.ShardSelector.Empty() {
		return true
	}
	in, err := p.MatchesSharding(&metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, UID: c.uid},
	})
	return err == nil && in
}

// size returns an object's Size, which the bounds of the history count.
func size(o keepwatch.Object) int {
	if o, ok := o.(*Object); ok {
		return o.Size()
	}
	return 0 // of a deletion
}
