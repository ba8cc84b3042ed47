package access

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/keepwatch/keepwatch/internal/pause"
)

const (
	// undecidedFor is how long a watch stays open that may no longer be allowed, while the server does not decide.
	undecidedFor = 10 * time.Second
	// longestOpen bounds an open request, with a random tenth more, whatever timeout its client asks for. At the server, a
	// watch ends with the server at the latest; one from memory outlives that. By default the server itself ends watches
	// after 30 to 60 minutes.
	longestOpen = time.Hour
)

// openRequest is a watch, or another request without an end, while its caller is known and allowed to send it.
type openRequest struct {
	permissions *permissions
	caller      *Caller
	attributes  authorizer.Attributes
	// announced receives that the decision may have changed, and within which time it is to be made again.
	announced chan time.Duration
}

// guard returns a context that ends when the server no longer knows the caller of a request that it has allowed, or no
// longer allows the request, when the caller's credentials expire, and after longestOpen. The caller of guard calls end
// at the end of the request. number is from the decision that allowed it.
func (p *permissions) guard(ctx context.Context, by *Caller, attributes authorizer.Attributes,
	number uint64) (guarded context.Context, end func()) {
	until := time.Now().Add(longestOpen + rand.N(longestOpen/10))
	if !by.expires.IsZero() && by.expires.Before(until) {
		until = by.expires
	}
	guarded, cancel := context.WithDeadline(ctx, until)
	r := &openRequest{p, by, attributes, make(chan time.Duration, 1)}
	p.opened(r, number)
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		r.follow(guarded)
	})
	return guarded, func() {
		cancel()
		running.Wait()
		p.closed(r)
	}
}

// guardIdentity is guard for a personal view, which itself follows what the server allows. The context ends when the
// caller is no longer known, or is another user: with other groups.
func (p *permissions) guardIdentity(ctx context.Context, by *Caller) (guarded context.Context, end func()) {
	until := time.Now().Add(longestOpen + rand.N(longestOpen/10))
	if !by.expires.IsZero() && by.expires.Before(until) {
		until = by.expires
	}
	guarded, cancel := context.WithDeadline(ctx, until)
	r := &openRequest{permissions: p, caller: by, attributes: authorizer.AttributesRecord{User: by.Info}}
	before := describe(r.attributes)
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		for guarded.Err() == nil {
			d := p.decidedFor()
			_ = pause.For(guarded, d+rand.N(d/4))
			if !r.holds(guarded, r.identified) || describe(r.attributes) != before {
				return
			}
		}
	})
	return guarded, func() {
		cancel()
		running.Wait()
	}
}

// follow returns when the request must end, or ctx has ended.
func (r *openRequest) follow(ctx context.Context) {
	interval := func() time.Duration {
		d := r.permissions.decidedFor()
		return d + rand.N(d/4) // many watches begin together, when a proxy starts
	}
	// for what no change of roles shows: the identity, webhooks, roles that the proxy may not read
	unseen := r.permissions.untilUnseen() // before the interval, which it makes shorter
	due := time.Now().Add(interval())
	again := time.NewTimer(time.Until(due))
	defer again.Stop()
	for held := true; held; {
		select {
		case within := <-r.announced:
			_ = pause.For(ctx, rand.N(within+1))
			held = r.holds(ctx, r.allowed)
		case <-again.C:
			held = r.holds(ctx, r.identified) && r.holds(ctx, r.allowed)
			due = time.Now().Add(interval())
			again.Reset(time.Until(due))
		case <-unseen:
			unseen = r.permissions.untilUnseen()
			if sooner := time.Now().Add(interval()); sooner.Before(due) {
				due = sooner
				again.Reset(time.Until(due))
			}
		case <-ctx.Done():
			return
		}
	}
}

// holds repeats a question until the server decides it. What is not decided after undecidedFor does not hold. The time
// for which the proxy has not asked, because many reviews were in flight, does not count: as many watches as there may
// be are decided as fast as the server answers reviewsOfAll at a time. Each of these ends after reviewFor. If the
// reviews of n users wait, what is revoked waits for its denial and for the confirmation, each for n/reviewsOfAll times
// what the server needs for one, and for outageFor altogether at the latest. While the server is silent, nothing waits
// there.
func (r *openRequest) holds(ctx context.Context, asked func(context.Context) (bool, error)) bool {
	began := time.Now()
	ctx, queued := patient(ctx)
	for {
		held, err := asked(ctx)
		left := undecidedFor - (time.Since(began) - queued.total)
		if err == nil || left <= 0 || queued.total >= outageFor || ctx.Err() != nil {
			return err == nil && held
		}
		_ = pause.For(ctx, min(time.Second, left))
	}
}

// identified reports whether the server still knows the caller, and records as whom. A refusal counts when the server
// repeats it while it is ready.
func (r *openRequest) identified(ctx context.Context) (bool, error) {
	known, err := r.caller.again(ctx)
	if errors.Is(err, errUnknown) {
		if err := r.permissions.probe.Ready(ctx); err != nil {
			return false, err
		}
		known, err = r.caller.again(ctx)
	}
	if errors.Is(err, errUnknown) {
		return false, nil
	}
	if err == nil {
		r.attributes = attributesOf{r.attributes, known} // its groups may be others
	}
	return err == nil, err
}

// allowed reports whether the server still allows the request. A denial counts when the server repeats it while it is
// ready.
func (r *openRequest) allowed(ctx context.Context) (bool, error) {
	allowed, err := r.permissions.stillAllowed(ctx, r.attributes)
	if err == nil && !allowed {
		allowed, err = r.permissions.confirmed(ctx, r.attributes, r.permissions.made)
	}
	return allowed, err
}

// attributesOf are those of a request, for another user.
type attributesOf struct {
	authorizer.Attributes
	user user.Info
}

// GetUser returns that user.
func (a attributesOf) GetUser() user.Info { return a.user }
