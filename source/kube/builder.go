package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// builder builds objects from raw ones. The zero value is ready, and builds Objects.
type builder struct {
	decode      func(Raw) (keepwatch.Object, error) // nil for Objects
	dropManaged bool

	itemType typeMeta  // of list items that have none; empty while unknown
	lastType *typeMeta // of the newest object, shared with the next one

	// The newest object's own type, and the members that it lacked.
	lastOwn     typeMeta
	lastMissing string
}

// build returns the object of raw. The two share no memory. An object without a name or a
// revision is a violation. One without a UID has that of its name.
func (b *builder) build(raw rawObject, r *row) (keepwatch.Object, error) {
	if raw.name == "" {
		return nil, violation{errors.New("an object has no name")}
	}
	key := keepwatch.Key{Namespace: raw.namespace, Name: raw.name}
	revision, err := keepwatch.ParseRevision(raw.revision)
	if err != nil {
		return nil, unversioned{violation{fmt.Errorf("object %s: %w", key, err)}}
	}
	uid := keepwatch.UID(raw.uid)
	if uid == "" {
		uid = uidOf(key)
	}
	own := typeMeta{raw.apiVersion, raw.kind}
	if b.decode != nil {
		return b.buildDecoded(Raw{
			Key: key, UID: uid, Revision: revision,
			Kind: own.or(b.itemType).gvk(), Encoding: raw.encoding, Body: raw.text,
		})
	}
	o := &Object{
		key: key, uid: uid, revision: revision,
		text: raw.text, metadata: raw.metadata, managed: raw.managed, row: r,
	}
	b.setType(o, own)
	return o, nil
}

// uidOf returns the UID of an object that has none, as those of some aggregated APIs. It
// depends on the name alone, so that an object that is created again is the same object.
func uidOf(key keepwatch.Key) keepwatch.UID {
	sum := sha256.Sum256([]byte(key.Namespace + "/" + key.Name))
	return keepwatch.UID(hex.EncodeToString(sum[:16]))
}

func (b *builder) buildDecoded(raw Raw) (keepwatch.Object, error) {
	o, err := b.decode(raw)
	if err != nil {
		return nil, decodeError{fmt.Errorf("object %s at revision %v: %w", raw.Key, raw.Revision, err)}
	}
	return o, nil
}

// completeType sets the type of o if the list's kind was read after o was built.
func (b *builder) completeType(o *Object) {
	if o.kind.or(b.itemType) != *o.kind {
		b.setType(o, *o.kind)
	}
}

// setType sets the type of o, whose text contains only own. It copies the text to a slice
// of the exact size, and inserts the missing members at the beginning.
func (b *builder) setType(o *Object, own typeMeta) {
	full := own.or(b.itemType)
	if b.lastType == nil || *b.lastType != full || b.lastOwn != own {
		b.lastType, b.lastOwn, b.lastMissing = &full, own, own.missingMembers(full)
	}
	text := make([]byte, 0, len(o.text)+len(b.lastMissing))
	text = append(append(text, '{'), b.lastMissing...)
	o.text = append(text, o.text[1:]...)
	o.metadata, o.managed = o.metadata.shifted(len(b.lastMissing)), o.managed.shifted(len(b.lastMissing))
	o.kind = b.lastType
}

// typeMeta is an object's apiVersion and kind. One is shared by all objects of a
// page or a watch.
type typeMeta struct{ apiVersion, kind string }

// or returns t with its empty fields from other.
func (t typeMeta) or(other typeMeta) typeMeta {
	return typeMeta{cmp.Or(t.apiVersion, other.apiVersion), cmp.Or(t.kind, other.kind)}
}

func (t typeMeta) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(t.apiVersion, t.kind)
}

// missingMembers returns the JSON members that are in full but not in t, each with a comma.
func (t typeMeta) missingMembers(full typeMeta) string {
	var members []byte
	if t.apiVersion != full.apiVersion {
		members = append(appendQuoted(append(members, `"apiVersion":`...), full.apiVersion), ',')
	}
	if t.kind != full.kind {
		members = append(appendQuoted(append(members, `"kind":`...), full.kind), ',')
	}
	return string(members)
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the only error is invalid UTF-8, which is replaced
	return dst
}
