package proxy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
)

const (
	// knownFor is how long a decision is used while nothing changes, if the proxy sees changes of roles and
	// bindings; unobservedFor if it does not.
	knownFor, unobservedFor = 2 * time.Minute, 10 * time.Second
	// settling is how long after such a change API servers may still decide by what was before it: each follows
	// the roles by itself. Until then a decision is used for settlingFor.
	settling, settlingFor = 5 * time.Second, time.Second
	// Open watches are decided again when roles change, and once more after confirmedAfter: the API server that decides may follow
	// the roles later than the proxy. While changes go on, they are decided again every announcedEvery.
	confirmedAfter, announcedEvery = 500 * time.Millisecond, time.Second
	// reviewFor bounds one question to the server, with its repetitions.
	reviewFor = 10 * time.Second
)

// permissions decides as the server does, by SubjectAccessReviews. It remembers decisions, and forgets all of
// them when a role or a binding changes. Callers that need the same decision at the same time share one review:
// after a change that is so for all open watches of a user. It is safe for concurrent use.
type permissions struct {
	reviews authorizationclient.AuthorizationV1Interface
	probe   *probe

	mu       sync.Mutex
	observed bool // changes of roles and bindings are seen
	settled  *time.Timer
	current  authorizer.Authorizer
	// confirming decides about open watches that current denies. It remembers nothing that current does, and that for
	// settlingFor, so that the watches of a user share a review.
	confirming authorizer.Authorizer
	changed    chan struct{} // closed when current is replaced after a change
	pending    *time.Timer   // closes changed once more; nil if that is done for all changes
	// changedSince says that there was another change since pending began to run.
	changedSince bool
	changes      int
	renewals     int                   // of current
	last         *cache.LRUExpireCache // bool by review
	asking       singleflight.Group    // by renewal and review
}

func newPermissions(reviews authorizationclient.AuthorizationV1Interface, server *probe) (*permissions, error) {
	p := &permissions{reviews: authorizationclient.New(once{reviews.RESTClient()}), probe: server, changed: make(chan struct{}), last: cache.NewLRUExpireCache(maxReviews)}
	return p, p.renew(unobservedFor)
}

// remembering returns an authorizer that uses each decision for some time.
func (p *permissions) remembering(lifetime time.Duration) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: p.reviews, AllowCacheTTL: lifetime, DenyCacheTTL: min(lifetime, unobservedFor),
		WebhookRetryBackoff: &reviewRetries,
	}.New()
}

// allowed reports whether the server allows a request, and a channel that is closed when that may have
// changed. It returns an error if the server does not decide, and has not decided since the last change.
func (p *permissions) allowed(ctx context.Context, attributes authorizer.Attributes) (bool, <-chan struct{}, error) {
	return p.decide(ctx, attributes, false)
}

// confirmed is allowed for an open watch that is denied. The server is asked again, and must be ready and decide.
func (p *permissions) confirmed(ctx context.Context, attributes authorizer.Attributes) (bool, <-chan struct{}, error) {
	if err := p.probe.ready(ctx); err != nil {
		return false, nil, err
	}
	return p.decide(ctx, attributes, true)
}

// decide is allowed or confirmed.
func (p *permissions) decide(ctx context.Context, attributes authorizer.Attributes, confirm bool) (bool, <-chan struct{}, error) {
	p.mu.Lock()
	by, changed, renewal := p.current, p.changed, p.renewals
	if confirm {
		by = p.confirming
	}
	asked := review{p.changes, describe(attributes)}
	p.mu.Unlock()
	answer, err, _ := p.asking.Do(fmt.Sprintf("%d %t %x", renewal, confirm, asked.about), func() (any, error) {
		ctx, cancel, err := p.probe.reviewing(ctx)
		if err != nil {
			return false, err
		}
		defer cancel()
		decision, _, err := by.Authorize(ctx, attributes)
		return decision == authorizer.DecisionAllow, err
	})
	allowed := answer.(bool)
	if err == nil {
		p.last.Add(asked, allowed, outageFor)
		return allowed, changed, nil
	}
	if last, found := p.last.Get(asked); found && !confirm && isOutage(err) { // the last decision may be the denial
		return last.(bool), changed, nil
	}
	return false, changed, err
}

// review is a request that the server has decided about, after a number of changes of roles.
type review struct {
	changes int
	about   digest
}

// digest is a request's, as far as a decision may depend on it. Its size does not depend on the request: a caller with no
// rights at all can send names and selectors of a megabyte.
type digest [sha256.Size]byte

// describe returns the digest of a request. Strings are quoted, so that no value of one field reads as another field.
func describe(a authorizer.Attributes) digest {
	h := sha256.New()
	labels, labelError := a.GetLabelSelector()
	fields, fieldError := a.GetFieldSelector()
	fmt.Fprintf(h, "%#v %v %q %q %q %q %q %q %q %q", a.GetUser(), a.IsResourceRequest(), a.GetPath(), a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(),
		a.GetSubresource(), a.GetNamespace(), a.GetName())
	for _, r := range labels {
		fmt.Fprintf(h, " label %q %q %q", r.Key(), r.Operator(), r.ValuesUnsorted())
	}
	for _, r := range fields {
		fmt.Fprintf(h, " field %q %q %q", r.Field, r.Operator, r.Value)
	}
	fmt.Fprintf(h, " %q %q", fmt.Sprint(labelError), fmt.Sprint(fieldError))
	return digest(h.Sum(nil))
}

// forget drops all decisions, because a role or a binding has changed.
func (p *permissions) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes++
	p.replace(settlingFor)
	if p.pending == nil {
		p.announce()
		p.announceAgain(confirmedAfter)
	} else {
		p.changedSince = true
	}
	p.settleLater()
}

// announce lets open watches be decided again. p.mu is locked.
func (p *permissions) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// announceAgain announces once more, without the decisions that were made until then, and goes on while there are changes. p.mu is
// locked.
func (p *permissions) announceAgain(after time.Duration) {
	p.pending = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.replace(settlingFor)
		p.announce()
		p.pending = nil
		if p.changedSince {
			p.changedSince = false
			p.announceAgain(announcedEvery)
		}
	})
}

// settleLater lets settle run when API servers have followed the changes so far. p.mu is locked.
func (p *permissions) settleLater() {
	if p.settled != nil {
		p.settled.Stop()
	}
	p.settled = time.AfterFunc(settling, p.settle)
}

// settle uses decisions for longer again. Those of the last second are asked for once more: open watches
// too.
func (p *permissions) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replace(p.lifetime())
	p.announce()
}

// observe records whether changes are seen. Decisions are used for longer only after settling: the last changes
// may be recent.
func (p *permissions) observe(observed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case observed && !p.observed:
		p.settleLater()
	case !observed && p.observed:
		p.replace(unobservedFor)
	}
	p.observed = observed
}

// decidedFor is how long a decision is used while nothing changes.
func (p *permissions) decidedFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lifetime()
}

// lifetime is decidedFor. p.mu is locked.
func (p *permissions) lifetime() time.Duration {
	if p.observed {
		return knownFor
	}
	return unobservedFor
}

// replace begins without decisions. p.mu is locked.
func (p *permissions) replace(lifetime time.Duration) {
	if err := p.renew(lifetime); err != nil { // of a constant configuration
		klog.ErrorS(err, "Permissions are not renewed")
	}
}

// renew is replace at the start, where an invalid configuration is an error.
func (p *permissions) renew(lifetime time.Duration) error {
	current, err := p.remembering(lifetime)
	if err != nil {
		return err
	}
	confirming, err := p.remembering(settlingFor)
	if err != nil {
		return err
	}
	p.current, p.confirming = current, confirming
	p.renewals++
	return nil
}

// close stops the timers.
func (p *permissions) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changedSince = false
	for _, timer := range []*time.Timer{p.settled, p.pending} {
		if timer != nil {
			timer.Stop()
		}
	}
}
