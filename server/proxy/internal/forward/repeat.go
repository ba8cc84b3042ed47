package forward

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
)

const (
	// maxKept is the length of the longest body that is kept. API servers accept no longer object.
	maxKept = 3 << 20
	// maxAllKept bounds the bodies that are kept at a time. Further requests are sent once only.
	maxAllKept = 64 << 20
)

// keptBytes is the length of all bodies that are kept.
var keptBytes atomic.Int64

// keepBody reads the body of a request, so that net/http can send it once more on another connection: a server that
// ends a connection of HTTP/2, as each one does that restarts, has not processed the last requests on it. Without that
// each would be answered 503. It returns how much of keptBytes the caller gives back.
func keepBody(q *http.Request) (kept int64, err error) {
	if q.ContentLength <= 0 || q.ContentLength > maxKept || q.Body == nil {
		return 0, nil // net/http repeats a request without a body
	}
	if keptBytes.Add(q.ContentLength) > maxAllKept {
		return q.ContentLength, nil
	}
	var body bytes.Buffer // grows with what arrives
	if _, err := io.Copy(&body, q.Body); err != nil {
		return q.ContentLength, err
	}
	q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body.Bytes())), nil }
	q.Body, _ = q.GetBody()
	return q.ContentLength, nil
}
