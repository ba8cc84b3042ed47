package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// circuit fails reviews at once while the server does not answer them. Otherwise each request would wait until its own
// review has timed out. One review at a time is sent, to notice that the server answers again. A circuit is safe for
// concurrent use.
type circuit struct {
	mu       sync.Mutex
	answered time.Time // the last sign that the server answers
	retry    time.Time // when a review is sent next; zero while the server answers
}

var errUnanswered = errors.New("the API server does not answer reviews")

// around returns a transport of reviews.
func (c *circuit) around(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		begun, sent := c.begin()
		if !sent {
			if q.Body != nil {
				q.Body.Close()
			}
			return nil, errUnanswered
		}
		response, err := next.RoundTrip(q)
		if errors.Is(q.Context().Err(), context.DeadlineExceeded) || utilnet.IsTimeout(err) {
			c.timedOut(begun)
		} else {
			c.answers()
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// begin returns the time, and whether a review is sent.
func (c *circuit) begin() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.retry.IsZero() {
		return now, true
	}
	if now.Before(c.retry) {
		return now, false
	}
	c.retry = now.Add(reviewFor + failureKnownFor) // this one has ended by then
	return now, true
}

// isOpen reports whether a review would fail at once.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.retry)
}

// timedOut records that a review was not answered. If another one was answered after its begin, the server answers.
func (c *circuit) timedOut(begun time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if retry := time.Now().Add(failureKnownFor); !c.answered.After(begun) && c.retry.Before(retry) {
		c.retry = retry
	}
}

// answers records that the server answers, also with an error. Reviews are sent again.
func (c *circuit) answers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered, c.retry = time.Now(), time.Time{}
}
