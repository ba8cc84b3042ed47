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
)

// shared is an event's object, for all watches that are told of it.
func (s *Storage) shared(e Event) (runtime.Object, error) {
	key := told{e.Object, e.Revision}
	content := s.encodings.of(key)
	content.once.Do(func() { content.decoded, content.err = s.decodedAt(e.Object, e.Revision) })
	if content.err != nil {
		s.encodings.forget(key, content) // who asks next tries again
		if e.Type == watch.Deleted {
			return nil, unreadDeletion(content.err)
		}
		return nil, content.err
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

// recent is how many objects' encodings are kept: what watches that keep up are
// sent at the same time.
const recent = 256

// encodings let all watches that are told of the same state share its encoding. The
// zero value is ready for use.
type encodings struct {
	mu     sync.Mutex
	shared map[told]*shared
	order  [recent]told // of shared's keys, a ring
	next   int
}

// told is a state as it is told: that of an object, at a revision which is another
// one if the object was deleted then.
type told struct {
	object   *Object
	revision keepwatch.Revision
}

// of is what all watches share of a state. Who gets it has to see that it is decoded.
func (e *encodings) of(key told) *shared {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.shared[key]; known != nil {
		return known
	}
	if e.shared == nil {
		e.shared = make(map[told]*shared, recent)
	}
	delete(e.shared, e.order[e.next])
	fresh := &shared{encoded: map[runtime.Identifier]*encoding{}}
	e.shared[key], e.order[e.next] = fresh, key
	e.next = (e.next + 1) % recent
	return fresh
}

// forget drops what could not be decoded.
func (e *encodings) forget(key told, failed *shared) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shared[key] == failed {
		delete(e.shared, key)
	}
}

var (
	_ runtime.CacheableObject   = (*shared)(nil)
	_ metav1.ObjectMetaAccessor = (*shared)(nil)
)

// shared is an object that many watches send. It is encoded once in each encoding.
type shared struct {
	once    sync.Once      // decodes it
	decoded runtime.Object // never changes
	err     error          // why it could not be decoded

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
