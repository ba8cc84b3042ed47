package storage

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/internal/recent"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// sharedObject returns an event's object, for all watches that receive the event.
func (s *Storage) sharedObject(e watchcache.Event) (*sharedObject, error) {
	shared, err := s.shared.Get(sharedKey{e.Object, e.Revision}, func() (*sharedObject, error) {
		decoded, err := s.decodedAt(e.Object, e.Revision)
		return &sharedObject{decoded: decoded, size: int64(e.Object.Size()), encoded: map[runtime.Identifier]*encoding{}}, err
	})
	if err != nil {
		return nil, watchcache.DecodeError(e.Type, err)
	}
	return shared, nil
}

// ownObject returns an event's object, for one watch.
func (s *Storage) ownObject(e watchcache.Event) (runtime.Object, error) {
	decoded, err := s.decodedAt(e.Object, e.Revision)
	if err != nil {
		return nil, watchcache.DecodeError(e.Type, err)
	}
	return decoded, nil
}

// decodedAt returns an object with another revision than its own, if it was deleted then.
func (s *Storage) decodedAt(o *watchcache.Object, revision keepwatch.Revision) (runtime.Object, error) {
	decoded, err := o.Decoded()
	if err == nil && revision != o.Revision() {
		err = s.Versioner().UpdateObject(decoded, uint64(revision))
	}
	return decoded, err
}

// sharedKey is a state of an object as watches send it: at the revision of its deletion if it was
// deleted, otherwise at its own.
type sharedKey struct {
	object   *watchcache.Object
	revision keepwatch.Revision
}

const (
	// recentObjects and recentBytes bound the decoded objects: those that current watches send at
	// the same time.
	recentObjects = 256
	recentBytes   = 16 << 20 // of etcd
)

func newSharedObjects() *recent.Cache[sharedKey, *sharedObject] {
	size := func(s *sharedObject) int64 { return s.size }
	return recent.New[sharedKey](recentObjects, recentBytes, size)
}

var (
	_ runtime.CacheableObject   = (*sharedObject)(nil)
	_ metav1.ObjectMetaAccessor = (*sharedObject)(nil)
)

// sharedObject is an object that many watches send. It is encoded once in each encoding for the watches that are open
// when its change happens.
type sharedObject struct {
	decoded runtime.Object // never changes
	size    int64          // encoded
	mu      sync.Mutex
	encoded map[runtime.Identifier]*encoding
}

// encoding is made by the first watch that needs it.
type encoding struct {
	once  sync.Once
	bytes bytes.Buffer
	err   error
}

// CacheEncode writes the object as it was encoded for the first watch.
func (s *sharedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error,
	to io.Writer) error {
	s.mu.Lock()
	e := s.encoded[id]
	if e == nil {
		e = &encoding{}
		s.encoded[id] = e
	}
	s.mu.Unlock()
	e.once.Do(func() {
		e.err = errPanicked
		e.err = encode(s.GetObject(), &e.bytes)
	})
	if e.err != nil {
		return e.err
	}
	_, err := to.Write(e.bytes.Bytes())
	return err
}

// errPanicked is returned to the other watches when the encoding for the first one panicked.
var errPanicked = errors.New("encoding this object failed for another watch")

// historicObject is a shared object that a watch sends because the change is older than the watch. As in
// kube-apiserver, each watch encodes it: the encoder of CBOR returns other bytes each time, so that no client depends
// on the order of members.
type historicObject struct{ *sharedObject }

var _ runtime.CacheableObject = historicObject{}

// CacheEncode encodes the object for one watch.
func (h historicObject) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error,
	to io.Writer) error {
	return encode(h.GetObject(), to)
}

// GetObject returns a copy of the object.
func (s *sharedObject) GetObject() runtime.Object { return s.decoded.DeepCopyObject() }

// DeepCopyObject returns a copy of the object, without its encodings.
func (s *sharedObject) DeepCopyObject() runtime.Object { return s.decoded.DeepCopyObject() }

// GetObjectKind returns the object's.
func (s *sharedObject) GetObjectKind() schema.ObjectKind { return s.decoded.GetObjectKind() }

// GetObjectMeta returns a copy of the object's metadata.
func (s *sharedObject) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(s.decoded.DeepCopyObject())
	if err != nil {
		return nil
	}
	return m
}
