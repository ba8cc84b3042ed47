package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var _ sink.Receiver = (*Receiver)(nil)

// Options configure a receiver.
type Options struct {
	Mode  Mode
	Shape shape.Shape
	// Key, if not empty, signs requests as https://www.standardwebhooks.com says.
	Key []byte
	// DeadLetters is the path of the file of dead letters. Required. Beside it, with the suffix .run, is the number of
	// those since the last event that was delivered.
	DeadLetters string
	// Retrying, if set, is called with each failure and the wait before the next attempt, and Refused with the reason of
	// each dead letter. Both are called from Write's goroutine.
	Retrying func(err error, wait time.Duration)
	Refused  func(err error)
	// Timeout bounds a request. Zero means DefaultTimeout.
	Timeout time.Duration
	// Transport, if set, sends the requests in place of net/http's default one. If it uses HTTP/2, it must ping.
	Transport http.RoundTripper
}

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = time.Minute

// The bounds of a batch.
const (
	maxEvents = 200
	maxBytes  = 1 << 20
)

// Receiver is an HTTP server that receives events. It is a [sink.Receiver].
type Receiver struct {
	address  string
	name     string
	options  Options
	client   *http.Client
	streams  []sink.Stream
	refusals int // events that became dead letters since the last one that was delivered, also before a restart
}

// New returns the receiver at a URL, which may contain a user and a password. An error does not contain them.
func New(address string, options Options) (*Receiver, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the address must be https://HOST/PATH or http://HOST/PATH")
	}
	if u.User != nil && u.Scheme == "http" && !localhost.Is(u.Host) {
		return nil, errors.New("the address has a user, whose password http:// would send without encryption: give https://")
	}
	if options.Retrying == nil {
		options.Retrying = func(error, time.Duration) {}
	}
	if options.Refused == nil {
		options.Refused = func(error) {}
	}
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.Transport == nil {
		options.Transport = newTransport(options.Timeout)
	}
	client := &http.Client{
		Transport: options.Transport, Timeout: options.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	name := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // without user, password and query
	return &Receiver{address: address, name: name.String(), options: options, client: client}, nil
}

// newTransport returns net/http's default transport, which pings in addition. With HTTP/2, a request that ends by its
// timeout leaves its connection in use: without pings, a connection to a server that froze, or that a balancer has
// dropped, would receive each later attempt. It is closed within the timeout of one request.
func newTransport(timeout time.Duration) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: timeout / 2, PingTimeout: timeout / 4}
	return t
}

// String returns the URL without user, password and query.
func (r *Receiver) String() string { return r.name }

// Open connects to nothing: the first request shows whether the receiver answers.
func (r *Receiver) Open(_ context.Context, streams []sink.Stream, _ sink.Delivered) error {
	r.streams = streams
	return r.loadRefusals()
}

// Close closes idle connections.
func (r *Receiver) Close() error {
	r.client.CloseIdleConnections()
	return nil
}

// Write sends the messages of a batch until the receiver has accepted each, or it is a dead letter. See
// [sink.Receiver].
func (r *Receiver) Write(ctx context.Context, batch sink.Batch) error {
	var events []event.Event // of the next request
	bytes := 0
	for _, p := range batch.Pieces {
		origin := shape.Origin{ID: r.streams[p.Stream].ID, Epoch: p.After.Epoch, Snapshot: !p.Before.Started(),
			Time: batch.Time}
		for _, m := range p.Messages {
			e, err := newEvent(r.options.Shape, origin, m)
			if err != nil {
				return fmt.Errorf("%s: %w", origin.ID.Resource, err)
			}
			if n := len(events); n > 0 && (r.options.Mode != Batched || n == maxEvents || bytes+size(e) > maxBytes) {
				if err := r.deliver(ctx, events); err != nil {
					return err
				}
				events, bytes = nil, 0
			}
			events, bytes = append(events, e), bytes+size(e)
		}
	}
	return r.deliver(ctx, events)
}

// deliver sends events until the receiver has accepted them. An error is the end.
func (r *Receiver) deliver(ctx context.Context, events []event.Event) error {
	for attempt := 0; len(events) > 0; attempt++ {
		a, err := r.send(ctx, events)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			if err := r.wait(ctx, attempt, 0, fmt.Errorf("%s: %w", r, withoutAddress(err))); err != nil {
				return err
			}
			continue
		}
		switch judge(a.status, len(events)) {
		case delivered:
			return r.accepted()
		case retry:
			if a.status == http.StatusMisdirectedRequest {
				r.client.CloseIdleConnections() // another connection is needed (RFC 9110, 15.5.20)
			}
			if err := r.wait(ctx, attempt, a.wait, fmt.Errorf("%s answers %v", r, a)); err != nil {
				return err
			}
		case split:
			half := len(events) / 2
			if err := r.deliver(ctx, events[:half]); err != nil {
				return err
			}
			events, attempt = events[half:], -1
		case refused:
			return r.disk(r.addDeadLetter(events[0], a))
		case end:
			return fmt.Errorf("%s answers %v: %s", r, a, advice(a.status))
		}
	}
	return nil
}

// advice says what an answer means that is the end.
func advice(status int) string {
	switch status {
	case http.StatusGone:
		return "it wants no more events"
	case http.StatusUnsupportedMediaType:
		return "it wants another mode of CloudEvents"
	}
	return "redirects are not followed; give the address that it leads to"
}

// disk makes the error of a full disk an [sink.Unavailable].
func (r *Receiver) disk(err error) error {
	if sink.DiskFull(err) {
		return sink.Unavailablef("dead letters: %w", err)
	}
	return err
}

// withoutAddress returns the cause of an error, whose text may contain a password.
func withoutAddress(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// waits bounds the random wait before a request is sent again.
var waits = backoff.Exponential{First: 500 * time.Millisecond, Max: time.Minute}

// wait waits before the next attempt, at least for the receiver's own wait.
func (r *Receiver) wait(ctx context.Context, attempt int, least time.Duration, err error) error {
	wait := max(least, backoff.FullJitter(waits.Wait(attempt), rand.Int64N))
	r.options.Retrying(err, wait)
	return pause.For(ctx, wait)
}
