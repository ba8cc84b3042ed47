package readpath

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Table describes a resource's objects as the rows that `kubectl get` prints. It is safe for
// concurrent use if Row is.
type Table struct {
	// Columns describe the cells of each row.
	Columns []metav1.TableColumnDefinition
	// Row returns an object's row: its cells, and its conditions if it has some. A cell is a value that
	// JSON can represent, or a [Since]. Row need not set the row's object: the request says what it is.
	Row func(runtime.Object) (metav1.TableRow, error)
	// Unread are fields of an object's message that Row does not read: it then gets objects without them, if the watch
	// cache has the messages, and the metadata of the row is made of the message. So the resource's conversion, if there
	// is one, must not change the metadata. Nil decodes objects as a whole.
	Unread Fields
	// Now returns the time at which ages are shown. Nil means time.Now.
	Now func() time.Time
}

// now returns the time at which the ages of rows are shown.
func (t *Table) now() time.Time {
	if t == nil || t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// Since is a cell with the time since an event, such as an object's age. It differs in each response,
// so it is computed when the cached row is sent.
type Since struct {
	Time          time.Time
	Before, After string // the text before and after it in the cell
}

// At returns the text of the cell at a time, with the duration as kubectl shows it.
func (s Since) At(now time.Time) string {
	return s.Before + duration.HumanDuration(now.Sub(s.Time)) + s.After
}

// tableVersion returns the version of the Table whose rows have an encoding.
func tableVersion(as encoding) schema.GroupVersion {
	if as >= tableJSONBeta {
		return metav1beta1.SchemeGroupVersion
	}
	return metav1.SchemeGroupVersion
}

// A cached row is the JSON of a row, with a mark in the place of each age: a zero byte, which JSON never
// contains, and the time in microseconds as eight bytes.
const (
	ageMark = 0
	ageSize = 1 + 8
)

// encodeRow returns the row of an object with marks.
func (s *Reader) encodeRow(o runtime.Object, as encoding) ([]byte, error) {
	row, err := s.resource.Table.Row(o)
	if err != nil {
		return nil, err
	}
	included, err := s.included(o, as)
	if err != nil {
		return nil, err
	}
	return markedRow(row, included)
}

// included returns what a row has of its object. It may change the object.
func (s *Reader) included(o runtime.Object, as encoding) ([]byte, error) {
	switch as {
	case tableWhole, tableWholeBeta:
		item, err := s.encodeItem(o, objectJSON)
		if err != nil {
			return nil, err
		}
		return s.resource.appendObject(nil, item, objectJSON), nil
	case tableAlone, tableAloneBeta: // the end of the initial events is seen in the metadata
		if ends, err := apistorage.HasInitialEventsEndBookmarkAnnotation(o); err != nil || !ends {
			return null, err
		}
	}
	about, err := s.encodeMetadata(o, metadataJSON)
	if err != nil {
		return nil, err
	}
	return inVersion(about, as), nil
}

var null = []byte("null")

// inVersion returns the JSON of metadata in the version of a Table.
func inVersion(about []byte, as encoding) []byte {
	if tableVersion(as) == metadataVersion {
		return about
	}
	const kind = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`
	rest := bytes.TrimPrefix(about, []byte(kind+`v1"`))
	return append([]byte(kind+`v1beta1"`), rest...)
}

// encodeMessageRow is encodeRow of an object's message, without decoding what the row does not show. It returns false
// if the object must be decoded.
func (s *Reader) encodeMessageRow(o *watchcache.Object, as encoding) (row []byte, ok bool, err error) {
	if s.resource.Table.Unread == nil || !s.hasMessage(o) || as != tableJSON && as != tableJSONBeta {
		return nil, false, nil
	}
	about, ok := s.messageMetadata(o)
	if !ok {
		return nil, false, nil
	}
	part := getBuffer()
	defer func() { putBuffer(part) }()
	if part, ok = s.resource.Table.Unread.Without(part, o.Bytes()); !ok {
		return nil, false, nil
	}
	decoded, err := o.DecodedOf(part)
	if err != nil {
		return nil, false, err
	}
	cells, err := s.resource.Table.Row(decoded)
	if err != nil {
		return nil, false, err
	}
	row, err = markedRow(cells, inVersion(about, as))
	return row, true, err
}

// markedRow encodes a row with marks, and with the JSON of its object.
func markedRow(row metav1.TableRow, included []byte) ([]byte, error) {
	b := getBuffer()
	defer func() { putBuffer(b) }()
	b = append(b, `{"cells":[`...)
	for i, cell := range row.Cells {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendCell(b, cell); err != nil {
			return nil, err
		}
	}
	b = append(b, ']')
	if len(row.Conditions) > 0 {
		conditions, err := json.Marshal(row.Conditions)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"conditions":`...), conditions...)
	}
	b = append(append(b, `,"object":`...), included...)
	return bytes.Clone(append(b, '}')), nil
}

func appendCell(b []byte, cell any) ([]byte, error) {
	switch cell := cell.(type) {
	case int64:
		return strconv.AppendInt(b, cell, 10), nil
	case string:
		if isPlain(cell) {
			return append(append(append(b, '"'), cell...), '"'), nil
		}
	}
	since, ok := cell.(Since)
	if !ok {
		text, err := json.Marshal(cell)
		return append(b, text...), err
	}
	b = appendText(append(b, '"'), since.Before)
	b = append(b, ageMark)
	b = binary.BigEndian.AppendUint64(b, uint64(since.Time.UnixMicro()))
	return append(appendText(b, since.After), '"'), nil
}

// isPlain reports whether a text stands in JSON as it is.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// appendText appends text as JSON, without the quotes.
func appendText(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a string can't fail
	return append(b, quoted[1:len(quoted)-1]...)
}

// appendRow appends a row with the ages at a time.
func appendRow(b, row []byte, now time.Time) []byte {
	for {
		i := bytes.IndexByte(row, ageMark)
		if i < 0 {
			return append(b, row...)
		}
		at := time.UnixMicro(int64(binary.BigEndian.Uint64(row[i+1:])))
		b = appendText(append(b, row[:i]...), duration.HumanDuration(now.Sub(at)))
		row = row[i+ageSize:]
	}
}

// appendHead appends the start of a Table, up to its first row.
func (t *Table) appendHead(b []byte, about metav1.ListMeta, columns bool, as encoding) ([]byte, error) {
	start := struct {
		metav1.ListMeta   `json:"metadata,omitempty"`
		ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
	}{ListMeta: about}
	if columns {
		start.ColumnDefinitions = t.Columns
	}
	fields, err := json.Marshal(start)
	if err != nil {
		return nil, err
	}
	b = appendKind(b, tableVersion(as).WithKind("Table"))
	b = append(b, fields[1:len(fields)-1]...)
	return append(b, `,"rows":[`...), nil
}

// appendTable appends a Table of one row.
func (t *Table) appendTable(b, row []byte, revision string, columns bool, as encoding) ([]byte, error) {
	b, err := t.appendHead(b, metav1.ListMeta{ResourceVersion: revision}, columns, as)
	if err != nil {
		return nil, err
	}
	return append(appendRow(b, row, t.now()), "]}"...), nil
}
