package follow

import (
	"net/http"
	"sync"
	"time"
)

// serverClock is the clock of the API servers of a cluster, as the field Date of their answers shows it: of several,
// the one that is ahead of the others. While the machine sleeps, it stops until the next answer. It is safe for
// concurrent use.
type serverClock struct {
	mu       sync.Mutex
	date     time.Time // of an answer
	received time.Time
}

// now returns the time of the server, zero before its first answer.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locked()
}

func (c *serverClock) locked() time.Time {
	if c.date.IsZero() {
		return time.Time{}
	}
	return c.date.Add(time.Since(c.received)) // the difference is monotonic
}

func (c *serverClock) answered(date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if date.After(c.locked()) {
		c.date, c.received = date, time.Now()
	}
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
		t.clock.answered(date)
	}
	return answer, nil
}

// WrappedRoundTripper is for the Kubernetes libraries, which close its idle connections.
func (t dated) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
