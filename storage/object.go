package storage

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
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/etcd"
)

// Object is what the store holds: one state of an object. It never changes, and may be
// used by any goroutine. What is in it is read once, at the latest when somebody asks
// for it: its methods are for who has it from [Storage.Read].
type Object struct {
	*etcd.Object
	storage *Storage
	size    int // of the value in etcd, in bytes
	content atomic.Pointer[content]
	// unindexed is set once an index has asked for the object's values in vain.
	unindexed atomic.Bool
	attached  atomic.Pointer[any] // by Attach
}

// content is what is in an object: encoded, together with what selectors and indexes
// ask of it. It never changes. Of what is sealed there are the bytes alone.
type content struct {
	form           form
	failed         error // why what is sealed could not be read, if that was tried
	bytes          []byte
	uid            types.UID // the API's
	labels, fields attributes
	indexed        [][]string // the values under which each of Storage.indexes finds it
}

// Decoded is the object, which is the caller's. Its resourceVersion is set.
func (o *Object) Decoded() (runtime.Object, error) {
	if decoded, err := o.open(true); decoded != nil || err != nil {
		return decoded, err
	}
	c := o.content.Load()
	decoded, err := o.storage.unpack(c.form, c.bytes, o.Revision())
	if err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.storage.config.GroupResource, o.Key(), err)
	}
	return decoded, nil
}

// Bytes is the object as the API serves it: as Protobuf says the message of its Go
// type, without an envelope, or one JSON value. It is nil for an object that has to
// be decoded to be served: if its Go type is internal to the server, or etcd has it in
// another encoding than its kind's. It is also nil for an object that neither [Storage.Read] nor
// [Storage.Open] has returned: what etcd has may be encrypted. It must not be changed.
func (o *Object) Bytes() []byte {
	c := o.content.Load()
	if c.form != message && c.form != document {
		return nil
	}
	return c.bytes
}

// Protobuf reports whether Bytes is protobuf.
func (o *Object) Protobuf() bool { return o.content.Load().form == message }

// Labels are the object's.
func (o *Object) Labels() labels.Labels { return &o.content.Load().labels }

// Fields are those that selectors can name.
func (o *Object) Fields() fields.Fields { return &o.content.Load().fields }

// take makes an object of what etcd holds. While a storage starts it is left sealed:
// to decode everything takes several times as long as to read it, and who goes on from
// a revision asks for next to nothing of it.
func (s *Storage) take(o *etcd.Object, value []byte) (keepwatch.Object, error) {
	taken := &Object{Object: o, storage: s, size: len(value)}
	c := &content{form: sealed, bytes: value}
	taken.content.Store(c)
	if s.caughtUp() {
		_, _ = taken.read(c, true) // why it can't be read is for who reads it
	}
	return taken, nil
}

// open reads what is in an object, unless that was done before. What could not be read
// is tried again each time, since the reason may have passed: a key server that was
// away, for example. If this call has decoded it, it returns the object's Go value, which is
// the caller's. If whole is false, its message may be left to be made later.
func (o *Object) open(whole bool) (runtime.Object, error) {
	c := o.content.Load()
	switch {
	case c.opened(whole):
		return nil, nil
	case c.failed != nil:
		return o.read(c, whole)
	}
	lock := &o.storage.opening[maphash.Comparable(o.storage.seed, o.Key())%uint64(len(o.storage.opening))]
	lock.Lock()
	defer lock.Unlock()
	if c = o.content.Load(); c.opened(whole) || c.failed != nil {
		return nil, c.failed // as for who did it meanwhile
	}
	if c.form == unpacked {
		return o.pack(c)
	}
	return o.read(c, whole)
}

func (c *content) opened(whole bool) bool {
	return c.form != sealed && (c.form != unpacked || !whole)
}

// read tries to. An object that is open stays open, whoever fails beside.
func (o *Object) read(c *content, whole bool) (runtime.Object, error) {
	opened, decoded, err := o.storage.decode(o.Object, c.bytes, whole)
	if err != nil {
		o.content.CompareAndSwap(c, &content{form: sealed, failed: err, bytes: c.bytes})
		return nil, err
	}
	for {
		now := o.content.Load()
		if now.form != sealed || o.content.CompareAndSwap(now, opened) {
			return decoded, nil
		}
	}
}

// pack makes the message of an object that is unpacked.
func (o *Object) pack(c *content) (runtime.Object, error) {
	decoded, err := o.storage.unpack(unpacked, c.bytes, o.Revision())
	if err != nil {
		return nil, err
	}
	packed := *c
	packed.form = message
	if packed.bytes, err = o.storage.pack(message, decoded); err != nil {
		return nil, err
	}
	o.content.CompareAndSwap(c, &packed)
	return decoded, nil
}

// decode reads what etcd holds: the one time that conversion, defaults and whatever
// else the codec does are applied; or, if the object need not be whole, one of two. It fails if the
// object's name and namespace have to be those of its key and are not: nothing in etcd's database would
// notice that a bit of them was flipped.
func (s *Storage) decode(o *etcd.Object, value []byte, whole bool) (made *content, decoded runtime.Object, err error) {
	key := s.config.root() + o.Key().String()
	plain, err := s.decrypt(key, value)
	if err != nil {
		return nil, nil, err
	}
	if decoded, err = s.unpack(stored, plain, o.Revision()); err != nil {
		return nil, nil, err
	}
	m, err := meta.Accessor(decoded)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to name %q: %w", key, err)
	}
	if s.config.CheckNames && (m.GetNamespace() != o.Key().Namespace || m.GetName() != o.Key().Name) {
		return nil, nil, &misplaced{key}
	}
	if made, err = s.describe(o.Key(), decoded); err != nil {
		return nil, nil, fmt.Errorf("unable to select by %q: %w", key, err)
	}
	made.uid = m.GetUID()
	made.form, made.bytes = s.formOf(decoded, plain), plain
	if made.form == message && !whole {
		made.form = unpacked
		return made, decoded, nil
	}
	if made.form != stored {
		if made.bytes, err = s.pack(made.form, decoded); err != nil {
			return nil, nil, fmt.Errorf("unable to keep %q: %w", key, err)
		}
	}
	return made, decoded, nil
}

// misplaced is why an object can't be read whose name or namespace is not that of its key.
type misplaced struct{ key string }

func (e *misplaced) Error() string {
	return fmt.Sprintf("the object at %q is damaged: its name or namespace is not that of its key", e.key)
}

// fallback returns the error of a read that meets an object that can't be read: [ErrElsewhere], since
// etcd3 words the error, and fills a list with what it can read. It would show an object that is misplaced.
func fallback(err error) error {
	if of := (*misplaced)(nil); errors.As(err, &of) {
		return apistorage.NewInternalError(of)
	}
	return ErrElsewhere
}

func (s *Storage) decrypt(key string, stored []byte) ([]byte, error) {
	plain, _, err := s.transformer.TransformFromStorage(s.living(), stored, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("unable to transform key %q: %w", key, err)
	}
	return plain, nil
}

// describe is a content without its bytes and its UID.
func (s *Storage) describe(key keepwatch.Key, decoded runtime.Object) (*content, error) {
	labelSet, fieldSet, err := s.config.GetAttrs(decoded)
	if err != nil {
		return nil, err
	}
	return &content{
		labels: s.interner.attributes(key, labelSet), fields: s.interner.attributes(key, fieldSet),
		indexed: s.indexed(key, decoded),
	}, nil
}

// Read is an object of the store for a reader. It fails if what etcd holds can't be
// decoded or decrypted, but may succeed the next time.
func (s *Storage) Read(o keepwatch.Object) (*Object, error) {
	known, _, err := s.Open(o)
	return known, err
}

// Open is Read. If it was the first to read the object, it returns the object's Go value, too,
// which is the caller's: what [Object.Decoded] would decode once more.
func (s *Storage) Open(o keepwatch.Object) (known *Object, decoded runtime.Object, err error) {
	return s.open(o, true)
}

// Decode is Open for a reader that does not ask for protobuf. Of an object that the storage took up
// while it started, Decode makes no message: that is left to the first call of Open, or the background.
func (s *Storage) Decode(o keepwatch.Object) (known *Object, decoded runtime.Object, err error) {
	return s.open(o, false)
}

func (s *Storage) open(o keepwatch.Object, whole bool) (known *Object, decoded runtime.Object, err error) {
	known, ok := o.(*Object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T in the store", o)
	}
	if decoded, err = known.open(whole); err != nil {
		return nil, nil, err
	}
	return known, decoded, nil
}

// matches reports whether an object that was read matches.
func (o *Object) matches(p apistorage.SelectionPredicate) bool {
	c := o.content.Load()
	return p.Label.Matches(&c.labels) && p.Field.Matches(&c.fields) && inShard(p, o.Key(), c)
}

// inShard reports whether an object is in the shard that is asked for. Shards go by
// UID and namespace and nothing else (KEP-5866).
func inShard(p apistorage.SelectionPredicate, key keepwatch.Key, c *content) bool {
	if p.ShardSelector == nil || p.ShardSelector.Empty() {
		return true
	}
	in, err := p.MatchesSharding(&metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, UID: c.uid},
	})
	return err == nil && in
}

// size is how many bytes etcd keeps of an object: what the bounds of the history go by.
func size(o keepwatch.Object) int {
	if o, ok := o.(*Object); ok {
		return o.size
	}
	return 0 // a deletion's
}
