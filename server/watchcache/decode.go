package watchcache

import (
	"errors"
	"fmt"
	"hash/maphash"
	"weak"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
)

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
	lock := &o.family.decoding[maphash.Comparable(o.family.seed, o.Key())%uint64(len(o.family.decoding))]
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
	made, decoded, err := o.family.decodeContent(o.Object, c.bytes, whole)
	if err != nil {
		o.content.CompareAndSwap(c, &content{encoding: encoded, failed: err, bytes: c.bytes})
		o.family.unreadable.add(o, func() bool { return o.content.Load().failed != nil })
		return nil, err
	}
	for {
		now := o.content.Load()
		if now.encoding != encoded {
			return decoded, nil
		}
		if o.content.CompareAndSwap(now, made) {
			if now.failed != nil {
				o.family.unreadable.remove(weak.Make(o))
			}
			return decoded, nil
		}
	}
}

// makeMessage makes the message of a pending object. It returns the object's Go value.
func (o *Object) makeMessage(c *content) (runtime.Object, error) {
	decoded, err := o.family.unmarshal(pending, c.bytes, o.Revision())
	if err != nil {
		return nil, err
	}
	made := *c
	made.encoding = message
	if err := o.family.encode(&made, decoded); err != nil {
		return nil, err
	}
	o.content.CompareAndSwap(c, &made)
	return decoded, nil
}

// decodeContent decodes the source's bytes. Conversion, defaults and whatever else the codec does
// are applied here, and a second time by makeMessage if the object need not be whole. It fails if the
// object's name and namespace must be those of its key and are not: nothing in a database like etcd's
// would notice that a bit of them was flipped.
func (f *family) decodeContent(o keepwatch.Object, value []byte,
	whole bool) (made *content, decoded runtime.Object, err error) {
	plain := value
	if f.config.Decrypt != nil {
		if plain, err = f.config.Decrypt(f.runContext(), o.Key(), value); err != nil {
			return nil, nil, err
		}
	}
	decoded, stored, err := f.decodeSource(plain, o.Revision())
	if err != nil {
		return nil, nil, err
	}
	m, err := meta.Accessor(decoded)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to name %q: %w", f.sourceKey(o), err)
	}
	if f.config.CheckNames && (m.GetNamespace() != o.Key().Namespace || m.GetName() != o.Key().Name) {
		return nil, nil, &misplaced{f.sourceKey(o)}
	}
	if made, err = f.describe(o.Key(), decoded); err != nil {
		return nil, nil, fmt.Errorf("unable to select by %q: %w", f.sourceKey(o), err)
	}
	made.uid = m.GetUID()
	made.uidHash = shardHash(string(made.uid))
	made.encoding, made.bytes = f.encodingOf(decoded, plain, stored), plain
	if made.encoding == message && !whole {
		made.encoding = pending
		return made, decoded, nil
	}
	if err := f.encode(made, decoded); err != nil {
		return nil, nil, fmt.Errorf("unable to cache %q: %w", f.sourceKey(o), err)
	}
	return made, decoded, nil
}

// encode encodes a decoded object as made.encoding says. An object that cannot be served in
// Config.Served stays in the source's encoding.
func (f *family) encode(made *content, decoded runtime.Object) error {
	if made.encoding == fromSource || made.encoding == verbatim {
		return nil
	}
	b, err := f.marshal(made.encoding, decoded)
	switch {
	case err == nil:
		made.bytes = b
	case f.config.Served != nil:
		made.encoding = fromSource
	default:
		return err
	}
	return nil
}

// sourceKey returns the source's key of an object, for messages.
func (f *family) sourceKey(o keepwatch.Object) string {
	return f.config.SourcePrefix + o.Key().String()
}

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
func (f *family) describe(key keepwatch.Key, decoded runtime.Object) (*content, error) {
	labelSet, fieldSet, err := f.config.GetAttrs(decoded)
	if err != nil {
		return nil, err
	}
	return &content{
		labels: f.interner.attributes(key, labelSet), fields: f.interner.attributes(key, fieldSet),
		indexed: f.indexed(key, decoded),
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

// Decode returns an object of a snapshot as ReadDecoded does, for a caller that does not need
// protobuf. It does not encode the protobuf message of an object that the cache read while it
// started: the first call of ReadDecoded does, or the cache in the background.
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
