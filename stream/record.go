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

// record is what is remembered of an object that the consumer knows.
type record struct {
	// serial numbers the keys of the index, so that a set of them is a set of small
	// integers.
	serial   uint64
	uid      keepwatch.UID
	revision keepwatch.Revision
	// doubt, if not 0, says that a crash left it open whether the consumer was told:
	// then it is told again, as this.
	doubt    keepwatch.ChangeType
	metadata []byte
}

// recordOf remembers an object under a serial; for kind see metadataOf.
func recordOf(o Object, serial uint64, kind schema.GroupVersionKind) record {
	return record{
		serial: serial, uid: keepwatch.UID(strings.Clone(string(o.UID()))), revision: o.Revision(),
		metadata: metadataOf(o, kind),
	}
}

// encode makes the text of a record. The serial comes first, so that it can be
// read without the rest.
func (r record) encode() []byte {
	text := make([]byte, 0, sealSize+3*binary.MaxVarintLen64+1+len(r.uid)+len(r.metadata))
	text = text[:sealSize]
	text = binary.AppendUvarint(text, r.serial)
	text = binary.AppendUvarint(text, uint64(r.revision))
	text = append(text, byte(r.doubt))
	text = appendString(text, string(r.uid))
	text = append(text, r.metadata...)
	return seal(text)
}

// decodeRecord reads the text of a record, which it shares nothing with.
func decodeRecord(text []byte) (record, error) {
	body, err := unseal(text)
	if err != nil {
		return record{}, err
	}
	in := reader{rest: body}
	r := record{serial: in.uvarint(), revision: keepwatch.Revision(in.uvarint()), doubt: in.changeType()}
	r.uid = keepwatch.UID(in.string())
	r.metadata = append([]byte(nil), in.rest...)
	return r, in.err
}

// serialOf reads the serial of a record's text.
func serialOf(text []byte) (uint64, error) {
	if len(text) < sealSize {
		return 0, errDamaged
	}
	in := reader{rest: text[sealSize:]}
	return in.uvarint(), in.err
}

// parseKey reads what keepwatch.Key.String wrote: neither a namespace nor a name
// contains a slash.
func parseKey(text string) keepwatch.Key {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return keepwatch.Key{Namespace: namespace, Name: name}
	}
	return keepwatch.Key{Name: text}
}

// Every text in a state begins with its checksum: the file's own format has none
// for its data.
const sealSize = 4

var (
	errDamaged = errors.New("damaged: the checksum does not fit")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// seal fills in the checksum of a text whose first sealSize bytes are free.
func seal(text []byte) []byte {
	binary.BigEndian.PutUint32(text, crc32.Checksum(text[sealSize:], castagnoli))
	return text
}

// unseal returns what was sealed.
func unseal(text []byte) ([]byte, error) {
	if len(text) < sealSize || binary.BigEndian.Uint32(text) != crc32.Checksum(text[sealSize:], castagnoli) {
		return nil, errDamaged
	}
	return text[sealSize:], nil
}

func appendString(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}

// reader takes a text apart. After the first error it reads nothing but zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail("a number")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail("a string")
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

// changeType reads a keepwatch.ChangeType or 0.
func (r *reader) changeType() keepwatch.ChangeType {
	if len(r.rest) == 0 || r.rest[0] > byte(keepwatch.Deleted) {
		r.fail("a type of change")
		return 0
	}
	t := keepwatch.ChangeType(r.rest[0])
	r.rest = r.rest[1:]
	return t
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("damaged: %s is missing", what)
	}
	r.rest = nil
}
