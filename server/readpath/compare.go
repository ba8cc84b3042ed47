package readpath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// ErrIncomparable is why a Table cannot be compared: the reader does not have the state that the request names, or does
// not answer the request.
var ErrIncomparable = errors.New("the reader has no Table to compare with")

// CompareTable compares the body of an API server's response to a LIST, a Table without compression, with the reader's
// own: byte for byte, except that an age may be the one of any time from earliest to latest. It returns how many rows
// are equal, and an error about the first difference. The request must name one state, by an exact revision or a
// continue token; otherwise the states differ.
func (s *Reader) CompareTable(q *http.Request, info *request.RequestInfo, body []byte, earliest,
	latest time.Time) (rows int, err error) {
	r, why := s.resource.parse(q, info)
	if why != "" || info.Verb != "list" || !isTable(r.encoding) || r.pretty {
		return 0, fmt.Errorf("%w: %s", ErrIncomparable, why)
	}
	result, err := s.listOf(q.Context(), r)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrIncomparable, err)
	}
	head, tail, err := s.resource.listHeadAndTail(result, r.encoding, 0)
	if err != nil {
		return 0, err
	}
	rest, ok := bytes.CutPrefix(body, head)
	if !ok {
		return 0, differ("the head", body, head)
	}
	for o := range result.All() {
		row, err := s.itemEncoding(o, r.encoding, listRead)
		if err != nil {
			return rows, err
		}
		if rows > 0 {
			if rest, ok = bytes.CutPrefix(rest, comma); !ok {
				return rows, fmt.Errorf("the server has no row for %s", o.Key())
			}
		}
		if rest, ok = matchRow(rest, row, earliest, latest); !ok {
			likely := earliest.Add(latest.Sub(earliest) / 2)
			return rows, differ("the row of "+o.Key().String(), rest, appendRow(nil, row, likely))
		}
		rows++
	}
	if !bytes.Equal(rest, tail) {
		return rows, differ("the tail", rest, tail)
	}
	return rows, nil
}

// matchRow removes a row from the start of text. The row has marks, in whose places text has ages of a time from
// earliest to latest. It returns text as it is, and false, if that begins in another way.
func matchRow(text, row []byte, earliest, latest time.Time) (rest []byte, ok bool) {
	mark := bytes.IndexByte(row, ageMark)
	if mark < 0 {
		return bytes.CutPrefix(text, row)
	}
	behind, ok := bytes.CutPrefix(text, row[:mark])
	if !ok {
		return text, false
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(row[mark+1:])))
	tried := ""
	for now := earliest; ; now = now.Add(ageStep) {
		if now.After(latest) {
			now = latest
		}
		age := duration.HumanDuration(now.Sub(at))
		if age != tried {
			if behind, ok := bytes.CutPrefix(behind, appendText(nil, age)); ok {
				if rest, ok := matchRow(behind, row[mark+ageSize:], earliest, latest); ok {
					return rest, true
				}
			}
		}
		if tried = age; !now.Before(latest) {
			return text, false
		}
	}
}

// ageStep is at most the time between two ages that look different.
const ageStep = time.Second / 2

// differ returns an error that has the place of the first difference. It quotes nothing: errors are logged, and objects
// may have secrets.
func differ(what string, got, want []byte) error {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%s differs from the server's at byte %d", what, at)
}
