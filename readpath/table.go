package readpath

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Table is how a resource's objects look as what `kubectl get` prints. It is safe for
// concurrent use if Row is.
type Table struct {
	// Columns are what the cells of each row stand for.
	Columns []metav1.TableColumnDefinition
	// Row makes an object's row: its cells, and conditions if there are any. A cell is what
	// JSON has, or a [Since]. The row's object is not looked at: it is the metadata.
	Row func(runtime.Object) (metav1.TableRow, error)
}

// Since is a cell that tells how long ago something was. That is another one whenever it is
// asked for, but the row is the same.
type Since struct {
	Time          time.Time
	Before, After string // what stands around it in the cell
}

// At is the cell's text at some time, as kubectl shows durations.
func (s Since) At(now time.Time) string {
	return s.Before + duration.HumanDuration(now.Sub(s.Time)) + s.After
}

// tableVersion is the version of Tables that is answered here.
var tableVersion = metav1.SchemeGroupVersion

// A row is kept as it stands in a table, but where it tells how long ago something was, there
// are a zero byte, which JSON never has, and the time in microseconds as eight bytes.
const (
	gap     = 0
	gapSize = 1 + 8
)

// encodeRow makes the row of an object.
func (s *Reader) encodeRow(o runtime.Object) ([]byte, error) {
	row, err := s.Table.Row(o)
	if err != nil {
		return nil, err
	}
	b := []byte(`{"cells":[`)
	for i, cell := range row.Cells {
		if i > 0 {
			b = append(b, ',')
		}
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
	about, err := s.encode(o, metadataJSON)
	if err != nil {
		return nil, err
	}
	b = append(append(b, `,"object":`...), about...)
	return bytes.Clone(append(b, '}')), nil
}

func appendCell(b []byte, cell any) ([]byte, error) {
	since, ok := cell.(Since)
	if !ok {
		text, err := json.Marshal(cell)
		return append(b, text...), err
	}
	b = appendText(append(b, '"'), since.Before)
	b = append(b, gap)
	b = binary.BigEndian.AppendUint64(b, uint64(since.Time.UnixMicro()))
	return append(appendText(b, since.After), '"'), nil
}

// appendText appends text as it stands in a JSON string.
func appendText(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // which a string can't fail
	return append(b, quoted[1:len(quoted)-1]...)
}

// appendRow appends a row as it is at some time.
func appendRow(b, row []byte, now time.Time) []byte {
	for {
		i := bytes.IndexByte(row, gap)
		if i < 0 {
			return append(b, row...)
		}
		at := time.UnixMicro(int64(binary.BigEndian.Uint64(row[i+1:])))
		b = appendText(append(b, row[:i]...), duration.HumanDuration(now.Sub(at)))
		row = row[i+gapSize:]
	}
}

// appendStart appends the start of a table, up to its first row.
func (t *Table) appendStart(b []byte, about metav1.ListMeta, titled bool) ([]byte, error) {
	start := struct {
		metav1.ListMeta   `json:"metadata,omitempty"`
		ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
	}{ListMeta: about}
	if titled {
		start.ColumnDefinitions = t.Columns
	}
	fields, err := json.Marshal(start)
	if err != nil {
		return nil, err
	}
	b = appendKind(b, tableVersion.WithKind("Table"))
	b = append(b, fields[1:len(fields)-1]...)
	return append(b, `,"rows":[`...), nil
}

// appendTable appends a table of one row.
func (t *Table) appendTable(b, row []byte, revision string, titled bool) ([]byte, error) {
	b, err := t.appendStart(b, metav1.ListMeta{ResourceVersion: revision}, titled)
	if err != nil {
		return nil, err
	}
	return append(appendRow(b, row, time.Now()), "]}"...), nil
}
