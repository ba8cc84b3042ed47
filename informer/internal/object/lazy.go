package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/source/kube"
)

// recentValues is how many decoded values a lazyDecoder caches.
const recentValues = 64

// lazyDecoder decodes objects that are stored encoded when they are read. Any goroutine may use it.
type lazyDecoder struct {
	goType   reflect.Type // of the struct
	decoders sync.Pool    // of *decoder: one for each goroutine that decodes at the same time

	mu     sync.Mutex
	recent [recentValues]struct {
		object *encoded
		value  any
	}
	next int // index into recent

	lastKind *schema.GroupVersionKind // of the previous object; only the goroutine that calls encoded uses it
}

func newLazyDecoder(example runtime.Object, kind schema.GroupVersionKind, options Options) *lazyDecoder {
	l := &lazyDecoder{goType: reflect.TypeOf(example).Elem()}
	l.decoders.New = func() any { return newDecoder(example, kind, options) }
	return l
}

var _ item.Packed = (*encoded)(nil)

// encoded is an object as the server encoded it, or the encoded result of a transform.
type encoded struct {
	decoder  *lazyDecoder
	encoding kube.Encoding
	kind     *schema.GroupVersionKind
	body     []byte
}

// encoded returns a copy of an encoded object. It caches the value, which handlers of the change read next.
func (l *lazyDecoder) encoded(raw kube.Raw, value any) *encoded {
	if l.lastKind == nil || *l.lastKind != raw.Kind {
		l.lastKind = &raw.Kind
	}
	e := &encoded{decoder: l, encoding: raw.Encoding, kind: l.lastKind, body: bytes.Clone(raw.Body)}
	l.cache(e, value)
	return e
}

// cache caches a value in the place of the oldest one. It returns the value that is cached: another
// goroutine may have decoded the object in the meantime.
func (l *lazyDecoder) cache(e *encoded, value any) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if earlier := l.find(e); earlier != nil {
		return earlier
	}
	l.recent[l.next].object, l.recent[l.next].value = e, value
	l.next = (l.next + 1) % recentValues
	return value
}

// cached returns the cached value of an object, nil if there is none.
func (l *lazyDecoder) cached(e *encoded) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(e)
}

// find is cached for a caller that has locked l.mu.
func (l *lazyDecoder) find(e *encoded) any {
	for i := range l.recent {
		if l.recent[i].object == e {
			return l.recent[i].value
		}
	}
	return nil
}

func (l *lazyDecoder) decode(e *encoded) (runtime.Object, error) {
	d := l.decoders.Get().(*decoder)
	defer l.decoders.Put(d)
	return d.decode(e.encoding, e.body, *e.kind)
}

// Unpack returns the value, from the cache or decoded.
func (e *encoded) Unpack() any {
	if value := e.decoder.cached(e); value != nil {
		return value
	}
	value, err := e.decoder.decode(e)
	if err != nil {
		panic("object: an object was decoded once and cannot be decoded again: " + err.Error())
	}
	return e.decoder.cache(e, value)
}

// Pack encodes the value that a transform returned, and checks that it can be decoded again.
func (e *encoded) Pack(value any) (item.Packed, error) {
	if got, want := reflect.TypeOf(value), reflect.PointerTo(e.decoder.goType); got != want {
		return nil, fmt.Errorf("a compact informer cannot store a %v instead of a %v", got, want)
	}
	next := *e
	var err error
	if m, ok := value.(interface{ Marshal() ([]byte, error) }); ok && e.encoding == kube.Protobuf {
		next.body, err = m.Marshal()
	} else {
		next.encoding = kube.JSON
		next.body, err = json.Marshal(value)
	}
	if err != nil {
		return nil, err
	}
	again, err := e.decoder.decode(&next)
	if err != nil {
		return nil, err
	}
	e.decoder.cache(&next, again)
	return &next, nil
}

// Size returns the length of the encoded object.
func (e *encoded) Size() int { return len(e.body) }
