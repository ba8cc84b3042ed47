package access

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// probeEvery is the time between two probes.
	probeEvery = 2 * time.Second
	// probeFor is how long a probe waits: as long as a review. A server that is slower for its simplest answer counts as
	// silent.
	probeFor = reviewFor
	// probePath is exempt from an API server's priority and fairness, as the paths below it are not: a probe that waits in
	// the queue of a busy server would find it silent.
	probePath = "/readyz"
	// The proxy's credentials count as refused when that has lasted for refusedAfter: a server that starts refuses some.
	// It is logged every refusedEvery.
	refusedAfter, refusedEvery = 10 * time.Second, 10 * time.Minute
)

// errSilent is why the server is not asked, errNotReady why its answer does not count.
var (
	errSilent   = errors.New("the API server has not answered the last probe")
	ErrNotReady = errors.New("the API server is not ready")
)

// Probe asks the server on a timer whether it answers at all. No client causes its requests: one without any rights
// could keep it busy. While the server is silent, that is, takes requests and answers nothing, reviews are not sent,
// because each would wait for reviewFor. A server that refuses connections or answers with errors is not silent: that
// costs no time. An API server that starts listens before it has read roles, bindings and definitions: it denies what
// it will allow, and has not found what it has. That ends when it is ready.
//
// A nil *probe finds that the server answers and is ready. A probe is safe for concurrent use.
type Probe struct {
	server rest.Interface
	last   atomic.Pointer[probed]
	// wasReady is whether the server has answered a probe that it is ready. Some servers have no such path, or refuse it
	// to the proxy.
	wasReady atomic.Bool
	starts   atomic.Uint64
	// unanswered is since when probes have failed without an answer: the server is silent, or there is no connection. Nil
	// while it answers.
	unanswered atomic.Pointer[time.Time]
	// refused is since when the server answers that it does not know the proxy's credentials, nil while it does.
	refused atomic.Pointer[time.Time]
	asking  singleflight.Group
	// reviews bounds the reviews in flight.
	reviews reviewQueue
}

// probed is what the last probes have found.
type probed struct {
	answering context.Context // ends when a probe is not answered
	end       context.CancelFunc
	silent    time.Time // since when; zero while answering has not ended
}

func newProbe(server rest.Interface) *Probe {
	p := &Probe{server: server, reviews: newReviewQueue(reviewsOfAll)}
	p.answered()
	return p
}

// run probes until ctx ends.
func (p *Probe) run(ctx context.Context) {
	defer p.answered()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var logged time.Time // that the credentials are refused
	for {
		began := time.Now()
		err := p.ask(ctx)
		last := p.last.Load()
		switch {
		case ctx.Err() != nil:
			return
		case isAnswer(err):
			p.unanswered.Store(nil)
		case p.unanswered.CompareAndSwap(nil, &began):
			klog.ErrorS(err, "The server does not answer: it is asked again until it does", "every", probeEvery)
		}
		switch {
		case apierrors.IsUnauthorized(err):
			p.refused.CompareAndSwap(nil, &began)
		case isAnswer(err):
			p.refused.Store(nil)
		}
		if since := p.RefusedSince(); !since.IsZero() && time.Since(logged) >= refusedEvery {
			logged = time.Now()
			klog.ErrorS(err, "The server does not know the proxy's own credentials: all requests are forwarded, and nothing is "+
				"answered from memory", "since", since)
		} else if since.IsZero() {
			logged = time.Time{}
		}
		switch {
		case utilnet.IsTimeout(err) && last.silent.IsZero():
			klog.InfoS("The server does not answer a probe: reads are decided by what it has answered before", "after", probeFor)
			p.last.Store(&probed{answering: last.answering, end: last.end, silent: began})
			last.end()
		// not if a connection is given up: the next one may hang, too
		case !last.silent.IsZero() && (isAnswer(err) || utilnet.IsConnectionRefused(err)):
			klog.InfoS("The server answers again, or refuses connections", "after", time.Since(last.silent))
			p.answered()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask sends one probe. API servers answer it without a queue; any answer will do, also that the server is not ready.
func (p *Probe) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	err := p.server.Get().AbsPath(probePath).MaxRetries(0).Do(ctx).Error()
	if err == nil && !p.wasReady.Swap(true) || err != nil && p.wasReady.Load() {
		p.starts.Add(1)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // not every transport wraps it
	}
	return err
}

// Starts returns a number that is another one after each probe that has found the server not ready, or ready for the
// first time: it may have started since, and what it has denied before does not count for long.
func (p *Probe) Starts() uint64 {
	if p == nil {
		return 0
	}
	return p.starts.Load()
}

// isAnswer reports whether the server has answered a probe.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}

// Ready asks the server whether it is ready, and returns why its refusals do not count yet, nil if they do. They count
// if the server has never answered that it is ready. Callers at the same time share one request.
func (p *Probe) Ready(ctx context.Context) error {
	if p == nil {
		return nil
	}
	_, err, _ := p.asking.Do("", func() (any, error) {
		ctx, cancel, err := p.reviewing(ctx)
		if err != nil {
			return nil, err
		}
		defer cancel()
		return nil, p.ask(ctx)
	})
	if err == nil || !p.wasReady.Load() {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotReady, err)
}

// answered begins a time in which the server answers.
func (p *Probe) answered() {
	next := &probed{}
	next.answering, next.end = context.WithCancel(context.Background())
	p.last.Store(next)
}

// SilentSince returns since when the server is silent, zero while it is not.
func (p *Probe) SilentSince() time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.last.Load().silent
}

// UnansweredSince returns since when no probe is answered, zero while they are.
func (p *Probe) UnansweredSince() time.Time {
	if p == nil {
		return time.Time{}
	}
	if since := p.unanswered.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// RefusedSince returns since when the server does not know the proxy's credentials, zero while it does, and in the
// first moments.
func (p *Probe) RefusedSince() time.Time {
	if since := p.refused.Load(); since != nil && time.Since(*since) >= refusedAfter {
		return *since
	}
	return time.Time{}
}

// reviewing returns the context of a review that is not its caller's alone: it ends after reviewFor, and when the
// server is silent. reviewing fails if the server is silent already.
func (p *Probe) reviewing(ctx context.Context) (context.Context, context.CancelFunc, error) {
	return p.answering(ctx, reviewFor)
}

// answering returns a context that does not end with ctx, but after a time, and when the server is silent. It fails if
// the server is silent already.
func (p *Probe) answering(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	if p == nil {
		return ctx, cancel, nil
	}
	last := p.last.Load()
	if !last.silent.IsZero() {
		cancel()
		return nil, nil, errSilent
	}
	stop := context.AfterFunc(last.answering, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// reviewingFor is reviewing for one of many flows. It waits until few reviews are in flight: the time of a review
// begins then. It fails with ErrBusy if the wait takes longer than the patience of ctx, and when the server is silent.
func (p *Probe) reviewingFor(ctx context.Context, flow string) (context.Context, context.CancelFunc, error) {
	if p == nil {
		return p.reviewing(ctx)
	}
	waiting, stop, err := p.answering(ctx, patience(ctx))
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	if err := p.reviews.acquire(waiting, flow); err != nil {
		if errors.Is(waiting.Err(), context.Canceled) {
			return nil, nil, errSilent // an earlier decision counts
		}
		return nil, nil, err
	}
	ctx, cancel, err := p.reviewing(ctx)
	if err != nil {
		p.reviews.release()
		return nil, nil, err
	}
	return ctx, func() { p.reviews.release(); cancel() }, nil
}

// ReviewsInFlight returns how many reviews of tokens and requests the server has not answered yet.
func (p *Probe) ReviewsInFlight() int { return p.reviews.inFlight() }
