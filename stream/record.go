package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// record is the index's entry of an object that the consumer has.
type record struct {
	// serial numbers the keys of the index: a set of keys is then a set of small integers.
	serial   uint64
	uid      keepwatch.UID
	revision keepwatch.Revision
	// doubt, if not zero, is the type of an event that the consumer may not have received,
	// because of a crash. A list that has the object delivers it again, as this type.
	doubt     keepwatch.ChangeType
	rendition Rendition
	metadata  []byte
}

// recordOf returns the record of an object; for kind see metadataOf.
func recordOf(o Object, serial uint64, kind schema.GroupVersionKind) record {
	return record{
		serial: serial, uid: keepwatch.UID(strings.Clone(string(o.UID()))), revision: o.Revision(),
		rendition: Rendition{Sum: sumOf(o)}, metadata: metadataOf(o, kind),
	}
}

// projectMetadata replaces the metadata. A record of a transactional stream has none.
func (r *record) projectMetadata(project func([]byte) ([]byte, error)) (err error) {
	if len(r.metadata) > 0 {
		r.metadata, err = project(r.metadata)
	}
	return err
}

// encode returns the text of a record. The serial is first: serialOf reads it without
// the rest.
func (r record) encode() []byte {
	text := make([]byte, 0, checksumSize+4*binary.MaxVarintLen64+1+8+len(r.uid)+len(r.metadata))
	text = text[:checksumSize]
	text = binary.AppendUvarint(text, r.serial)
	text = binary.AppendUvarint(text, uint64(r.revision))
	if r.rendition.Sum == 0 {
		text = append(text, byte(r.doubt))
	} else {
		text = append(text, byte(r.doubt)|hasRendition)
		text = binary.BigEndian.AppendUint64(text, r.rendition.Sum)
		text = binary.AppendUvarint(text, r.rendition.Number)
	}
	text = appendString(text, string(r.uid))
	text = append(text, r.metadata...)
	return putChecksum(text)
}

// hasRendition is a bit of the byte of the doubt: the rendition follows. Records of format 1 have none.
const hasRendition = 0x80

// decodeRecord returns the record of a text. The record does not share the text's memory.
func decodeRecord(text []byte) (record, error) {
	body, err := verifyChecksum(text)
	if err != nil {
		return record{}, err
	}
	in := decoder{buf: body}
	r := record{serial: in.uvarint(), revision: keepwatch.Revision(in.uvarint())}
	r.doubt, r.rendition = in.doubt()
	r.uid = keepwatch.UID(in.string())
	r.metadata = append([]byte(nil), in.buf...)
	return r, in.err
}

// serialOf returns the serial of a record's text. It does not verify the checksum.
func serialOf(text []byte) (uint64, error) {
	if len(text) < checksumSize {
		return 0, errDamaged
	}
	in := decoder{buf: text[checksumSize:]}
	return in.uvarint(), in.err
}

// parseKey is the inverse of keepwatch.Key.String: neither a namespace nor a name
// contains a slash.
func parseKey(text string) keepwatch.Key {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return keepwatch.Key{Namespace: namespace, Name: name}
	}
	return keepwatch.Key{Name: text}
}

// Every text in a state begins with its checksum, because bbolt has none for its data.
const checksumSize = 4

var (
	errDamaged = errors.New("damaged: the checksum does not fit")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// putChecksum writes the checksum of a text into its first checksumSize bytes, and
// returns the text.
func putChecksum(text []byte) []byte {
	binary.BigEndian.PutUint32(text, crc32.Checksum(text[checksumSize:], castagnoli))
	return text
}

// verifyChecksum returns a text without its checksum, or errDamaged.
func verifyChecksum(text []byte) ([]byte, error) {
	if len(text) < checksumSize || binary.BigEndian.Uint32(text) != crc32.Checksum(text[checksumSize:], castagnoli) {
		return nil, errDamaged
	}
	return text[checksumSize:], nil
}

func appendString(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}

// decoder reads values from buf. After the first error it returns only zero values.
type decoder struct {
	buf []byte
	err error
}

func (r *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(r.buf)
	if size <= 0 {
		r.fail("a number")
		return 0
	}
	r.buf = r.buf[size:]
	return n
}

func (r *decoder) string() string {
	n := r.uvarint()
	if n > uint64(len(r.buf)) {
		r.fail("a string")
		return ""
	}
	s := string(r.buf[:n])
	r.buf = r.buf[n:]
	return s
}

// doubt reads the doubt of a record, and its rendition.
func (r *decoder) doubt() (doubt keepwatch.ChangeType, of Rendition) {
	if len(r.buf) == 0 || r.buf[0]&hasRendition == 0 {
		return r.changeType(), of
	}
	doubt = keepwatch.ChangeType(r.buf[0] &^ hasRendition)
	if len(r.buf) < 9 || doubt > keepwatch.Deleted {
		r.fail("a hash")
		return 0, of
	}
	of.Sum = binary.BigEndian.Uint64(r.buf[1:])
	r.buf = r.buf[9:]
	of.Number = r.uvarint()
	return doubt, of
}

// changeType reads a keepwatch.ChangeType or zero.
func (r *decoder) changeType() keepwatch.ChangeType {
	if len(r.buf) == 0 || r.buf[0] > byte(keepwatch.Deleted) {
		r.fail("a type of change")
		return 0
	}
	t := keepwatch.ChangeType(r.buf[0])
	r.buf = r.buf[1:]
	return t
}

func (r *decoder) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("damaged: %s is missing", what)
	}
	r.buf = nil
}
