package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

var _ keepwatch.Object = (*object)(nil)

// object is one object of a state.
type object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	digest   [sha256.Size]byte // of its content
}

func (o *object) Key() keepwatch.Key           { return o.key }
func (o *object) UID() keepwatch.UID           { return o.uid }
func (o *object) Revision() keepwatch.Revision { return o.revision }

// digestOf returns the function that makes an object of a server's text.
func digestOf(contentsOnly bool) func(kube.Raw) (keepwatch.Object, error) {
	return func(raw kube.Raw) (keepwatch.Object, error) {
		c, err := parseContent(raw.Body, contentsOnly)
		if err != nil {
			return nil, err
		}
		return newObject(raw.Key, raw.UID, raw.Revision, c)
	}
}

func newObject(key keepwatch.Key, uid keepwatch.UID, revision keepwatch.Revision, c content) (*object, error) {
	text, err := c.canonical()
	if err != nil {
		return nil, err
	}
	return &object{key, uid, revision, sha256.Sum256(text)}, nil
}

// digester is the digest of a whole state.
type digester struct{ hash.Hash }

func newDigester() digester { return digester{sha256.New()} }

// add adds the next object.
func (d digester) add(o *object) {
	d.Write([]byte(o.key.String())) // a hash returns no errors
	d.Write([]byte{0})              // which no key contains
	d.Write(o.digest[:])
}

// String returns the digest of the objects so far, in hexadecimal.
func (d digester) String() string { return hex.EncodeToString(d.Sum(nil)) }
