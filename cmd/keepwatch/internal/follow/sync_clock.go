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
	mu    sync.Mutex
	begun time.Time // with the first answer, by this machine's clock
	// later and earlier are how far the servers were ahead of begun plus the time since, at most: since period, and in
	// the period before. A server that was ahead may have been set right, or be gone.
	later, earlier time.Duration
	period         time.Time
}

// answersCount is the length of a period. Within it, each server answers.
const answersCount = 10 * time.Minute

// now returns the time of the servers, zero before the first answer.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.IsZero() {
		return time.Time{}
	}
	// The difference is monotonic, and the result has only a date: this machine's may have been changed.
	return c.begun.Round(0).Add(time.Since(c.begun) + max(c.later, c.earlier))
}

func (c *serverClock) answered(date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.begun.IsZero() {
		c.begun, c.period = now, now
		c.later = date.Sub(now)
		c.earlier = c.later
	}
	ahead := date.Sub(c.begun) - now.Sub(c.begun)
	if now.Sub(c.period) > answersCount {
		c.period, c.earlier, c.later = now, c.later, ahead
	}
	c.later = max(c.later, ahead)
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
