package follow

import (
	"net/http"
	"sync"
	"time"
)

// serverClock is the clock of an API server, as the field Date of its answers shows it. It is safe for concurrent use.
type serverClock struct {
	mu       sync.Mutex
	date     time.Time // of the last answer
	received time.Time
}

// now returns the time of the server, zero before its first answer.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return time.Time{}
	}
	return c.date.Add(time.Since(c.received)) // the difference is monotonic
}

// read returns a transport whose answers set the clock.
func (c *serverClock) read(transport http.RoundTripper) http.RoundTripper { return dated{transport, c} }

type dated struct {
	http.RoundTripper
	clock *serverClock
}

func (t dated) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		t.clock.mu.Lock()
		defer t.clock.mu.Unlock()
		t.clock.date, t.clock.received = date, time.Now()
	}
	return answer, nil
}

// WrappedRoundTripper is for the Kubernetes libraries, which close its idle connections.
func (t dated) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
