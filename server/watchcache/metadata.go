package watchcache

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Ready is closed when the cache has caught up with its source for the first time.
func (c *Cache) Ready() <-chan struct{} { return c.ready }

// Changes returns a watcher of all changes after a cursor. Unlike [Cache.Watch] it decodes no object: [Cache.Metadata]
// and [Cache.Read] do.
func (c *Cache) Changes(from store.Cursor) *store.Watcher { return c.store.Watch(from, store.Filter{}) }

// Metadata returns the metadata of an object of a snapshot or of a watcher, in the version in which the source has the
// object. It decodes nothing else of it, and retains nothing. It fails as [Cache.Read] does, but reads an object that
// cannot be converted.
func (c *Cache) Metadata(o keepwatch.Object) (*metav1.ObjectMeta, error) {
	cached, ok := o.(*Object)
	if !ok {
		return nil, fmt.Errorf("a %T in the watch cache", o)
	}
	now := cached.content.Load()
	plain := now.bytes
	if now.encoding == encoded && c.config.Decrypt != nil {
		var err error
		if plain, err = c.config.Decrypt(c.runContext(), o.Key(), plain); err != nil {
			return nil, err
		}
	}
	m, err := c.metadata(plain, now.encoding == message || now.encoding == verbatim && c.verbatimProtobuf, o.Revision())
	switch {
	case err != nil:
		return nil, fmt.Errorf("decode the metadata of %s %s: %w", c.config.GroupResource, o.Key(), err)
	case c.config.CheckNames && (m.Namespace != o.Key().Namespace || m.Name != o.Key().Name):
		return nil, &misplaced{c.sourceKey(o)}
	}
	m.ResourceVersion = o.Revision().String()
	return m, nil
}

// metadata decodes the metadata of an object's message, or of what the source has.
func (c *Cache) metadata(plain []byte, isMessage bool, revision keepwatch.Revision) (*metav1.ObjectMeta, error) {
	m := &metav1.ObjectMeta{}
	switch {
	case isMessage:
		return m, unmarshalField(plain, 1, m.Unmarshal)
	case bytes.HasPrefix(plain, envelope): // of a runtime.Unknown, whose second field is the message
		return m, unmarshalField(plain[len(envelope):], 2, func(b []byte) error { return unmarshalField(b, 1, m.Unmarshal) })
	case bytes.HasPrefix(plain, []byte("{")):
		document := metav1.PartialObjectMetadata{}
		return &document.ObjectMeta, utiljson.Unmarshal(plain, &document)
	}
	decoded, _, err := c.decodeSource(plain, revision)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(decoded)
	if err != nil {
		return nil, err
	}
	return &meta.AsPartialObjectMetadata(accessor).ObjectMeta, nil
}

// unmarshalField calls unmarshal with the bytes of a field of a protobuf message. A message without it is damaged.
func unmarshalField(message []byte, number protowire.Number, unmarshal func([]byte) error) error {
	for len(message) > 0 {
		n, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return protowire.ParseError(length)
		}
		message = message[length:]
		if n == number && kind == protowire.BytesType {
			value, length := protowire.ConsumeBytes(message)
			if length < 0 {
				return protowire.ParseError(length)
			}
			return unmarshal(value)
		}
		if length = protowire.ConsumeFieldValue(n, kind, message); length < 0 {
			return protowire.ParseError(length)
		}
		message = message[length:]
	}
	return fmt.Errorf("the message has no field %d", number)
}
