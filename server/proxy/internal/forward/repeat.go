package forward

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"k8s.io/component-base/metrics"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// maxKept is the length of the longest body that is kept. API servers accept no longer object.
	maxKept = 3 << 20
	// maxAllKept bounds the bodies that are kept at a time, but for 32 KiB of each. Further requests are sent once only.
	maxAllKept = 64 << 20
)

// keptBytes is the length of what is kept of all bodies.
var keptBytes atomic.Int64

const keptHelp = "Bytes that are kept of the bodies of forwarded requests, to be sent once more on another connection."

func registerKept(registry metrics.KubeRegistry) {
	registry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "keepwatch_proxy_kept_body_bytes", StabilityLevel: metrics.ALPHA, Help: keptHelp,
	}, func() float64 { return float64(keptBytes.Load()) }))
}

// keepBody reads the body of a request, so that net/http can send it once more on another connection: a server that
// ends a connection of HTTP/2, as each one does that restarts, has not processed the last requests on it. Without that
// each would be answered 503. It returns how much of keptBytes the caller gives back.
func keepBody(q *http.Request) (kept int64, err error) {
	if q.ContentLength <= 0 || q.ContentLength > maxKept || q.Body == nil || sentOnce(q) {
		return 0, nil // net/http repeats a request without a body
	}
	var body bytes.Buffer // grows with what arrives
	for keptBytes.Load() < maxAllKept {
		n, err := io.CopyN(&body, q.Body, 32<<10)
		kept += n
		keptBytes.Add(n)
		switch {
		case errors.Is(err, io.EOF):
			q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body.Bytes())), nil }
			q.Body, _ = q.GetBody()
			return kept, nil
		case err != nil:
			return kept, err
		}
	}
	q.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&body, q.Body), q.Body}
	return kept, nil
}

// sentOnce reports whether the body of a request is not kept: an upgrade may last for hours. With an idempotency key
// net/http would also repeat a write to a server of HTTP/1.1, which may have processed it.
func sentOnce(q *http.Request) bool {
	return httpstream.IsUpgradeRequest(q) || q.Header["Idempotency-Key"] != nil || q.Header["X-Idempotency-Key"] != nil
}
