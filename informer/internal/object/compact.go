package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/source/kube"
)

// lately is how many values an unpacker keeps decoded.
const lately = 64

// unpacker decodes what is kept encoded, when it is asked for.
type unpacker struct {
	mu sync.Mutex
	decoder
	recent [lately]struct {
		of    *packed
		value any
	}
	next int // in recent

	said *schema.GroupVersionKind // by the last object; of the goroutine that packs
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
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keep(p, value)
	return p
}

// keep has a value at hand, in the place of the one that was decoded first; u.mu is held.
func (u *unpacker) keep(p *packed, value any) {
	u.recent[u.next].of, u.recent[u.next].value = p, value
	u.next = (u.next + 1) % lately
}

func (p *packed) Unpack() any {
	u := p.unpacker
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.recent {
		if r.of == p {
			return r.value
		}
	}
	value, err := u.decode(p.encoding, p.body, *p.kind)
	if err != nil {
		panic("object: what was decoded once can't be decoded again: " + err.Error())
	}
	u.keep(p, value)
	return value
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
	p.unpacker.mu.Lock()
	defer p.unpacker.mu.Unlock()
	_, err = p.unpacker.decode(next.encoding, next.body, *next.kind)
	return &next, err
}

func (p *packed) Size() int { return len(p.body) }
