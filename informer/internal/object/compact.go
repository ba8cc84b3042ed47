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

// lately is how many values an unpacker keeps decoded.
const lately = 64

// unpacker decodes what is kept encoded, when it is asked for, for any goroutine.
type unpacker struct {
	goType   reflect.Type // of the struct
	decoders sync.Pool    // of *decoder: as many decode at a time as ask

	mu     sync.Mutex
	recent [lately]struct {
		of    *packed
		value any
	}
	next int // in recent

	said *schema.GroupVersionKind // by the last object; of the goroutine that packs
}

func newUnpacker(example runtime.Object, kind schema.GroupVersionKind, options Options) *unpacker {
	u := &unpacker{goType: reflect.TypeOf(example).Elem()}
	u.decoders.New = func() any { return newDecoder(example, kind, options) }
	return u
}

var _ item.Packed = (*packed)(nil)

// packed is an object as it came, or as its transform left it.
type packed struct {
	unpacker *unpacker
	encoding kube.Encoding
	kind     *schema.GroupVersionKind
	body     []byte
}

// pack keeps a copy of what decodes to a value. That is at hand for a while: whoever
// is told of a change asks for it next.
func (u *unpacker) pack(raw kube.Raw, value any) *packed {
	if u.said == nil || *u.said != raw.Kind {
		u.said = &raw.Kind
	}
	p := &packed{unpacker: u, encoding: raw.Encoding, kind: u.said, body: bytes.Clone(raw.Body)}
	u.keep(p, value)
	return p
}

// keep has a value at hand, in the place of the one that was decoded first. It returns the
// value that is at hand: another goroutine may have decoded one meanwhile.
func (u *unpacker) keep(p *packed, value any) any {
	u.mu.Lock()
	defer u.mu.Unlock()
	if earlier := u.find(p); earlier != nil {
		return earlier
	}
	u.recent[u.next].of, u.recent[u.next].value = p, value
	u.next = (u.next + 1) % lately
	return value
}

// atHand returns the value that was decoded lately, nil if it was not.
func (u *unpacker) atHand(p *packed) any {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.find(p)
}

// find is atHand; u.mu is held.
func (u *unpacker) find(p *packed) any {
	for i := range u.recent {
		if u.recent[i].of == p {
			return u.recent[i].value
		}
	}
	return nil
}

func (u *unpacker) decode(p *packed) (runtime.Object, error) {
	d := u.decoders.Get().(*decoder)
	defer u.decoders.Put(d)
	return d.decode(p.encoding, p.body, *p.kind)
}

func (p *packed) Unpack() any {
	if value := p.unpacker.atHand(p); value != nil {
		return value
	}
	value, err := p.unpacker.decode(p)
	if err != nil {
		panic("object: what was decoded once can't be decoded again: " + err.Error())
	}
	return p.unpacker.keep(p, value)
}

// Pack encodes what a transform made of the value, and makes sure that it can be
// decoded again.
func (p *packed) Pack(value any) (item.Packed, error) {
	if got, want := reflect.TypeOf(value), reflect.PointerTo(p.unpacker.goType); got != want {
		return nil, fmt.Errorf("an informer that keeps objects compact can't keep a %v in the place of a %v", got, want)
	}
	next := *p
	var err error
	if m, ok := value.(interface{ Marshal() ([]byte, error) }); ok && p.encoding == kube.Protobuf {
		next.body, err = m.Marshal()
	} else {
		next.encoding = kube.JSON
		next.body, err = json.Marshal(value)
	}
	if err != nil {
		return nil, err
	}
	again, err := p.unpacker.decode(&next)
	if err != nil {
		return nil, err
	}
	p.unpacker.keep(&next, again)
	return &next, nil
}

func (p *packed) Size() int { return len(p.body) }
