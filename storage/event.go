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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/recent"
)

// shared is an event's object, for all watches that are told of it.
func (s *Storage) shared(e Event) (runtime.Object, error) {
	content, err := s.told.Of(told{e.Object, e.Revision}, func() (*shared, error) {
		decoded, err := s.decodedAt(e.Object, e.Revision)
		return &shared{decoded: decoded, size: int64(e.Object.size), encoded: map[runtime.Identifier]*encoding{}}, err
	})
	if err != nil && e.Type == watch.Deleted {
		return nil, unreadDeletion(err)
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}

// decodedAt is an object with another revision than its own, if it was deleted then.
func (s *Storage) decodedAt(o *Object, revision keepwatch.Revision) (runtime.Object, error) {
	decoded, err := o.Decoded()
	if err == nil && revision != o.Revision() {
		err = s.versioner.UpdateObject(decoded, uint64(revision))
	}
	return decoded, err
}

// told is a state as it is told: that of an object, at a revision which is another
// one if the object was deleted then.
type told struct {
	object   *Object
	revision keepwatch.Revision
}

const (
	// recentObjects and recentBytes bound what is kept decoded: what watches that keep up
	// are told of at the same time.
	recentObjects = 256
	recentBytes   = 16 << 20 // as etcd has the objects
)

func newTold() *recent.Cache[told, *shared] {
	size := func(s *shared) int64 { return s.size }
	return recent.New[told](recentObjects, recentBytes, size)
}

var (
	_ runtime.CacheableObject   = (*shared)(nil)
	_ metav1.ObjectMetaAccessor = (*shared)(nil)
)

// shared is an object that many watches send. It is encoded once in each encoding.
type shared struct {
	decoded runtime.Object // never changes
	size    int64          // encoded
	mu      sync.Mutex
	encoded map[runtime.Identifier]*encoding
}

// encoding is made by who asks first.
type encoding struct {
	once  sync.Once
	bytes bytes.Buffer
	err   error
}

// CacheEncode writes the object as it was encoded for the first who asked.
func (s *shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, to io.Writer) error {
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

// errPanicked is what the others get when who encoded first did not survive it.
var errPanicked = errors.New("encoding this object failed for another watch")

// GetObject is a copy of the object.
func (s *shared) GetObject() runtime.Object { return s.decoded.DeepCopyObject() }

// DeepCopyObject is a copy of the object, without its encodings.
func (s *shared) DeepCopyObject() runtime.Object { return s.decoded.DeepCopyObject() }

// GetObjectKind is the object's.
func (s *shared) GetObjectKind() schema.ObjectKind { return s.decoded.GetObjectKind() }

// GetObjectMeta is a copy of the object's metadata.
func (s *shared) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(s.decoded.DeepCopyObject())
	if err != nil {
		return nil
	}
	return m
}
