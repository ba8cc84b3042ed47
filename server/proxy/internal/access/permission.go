package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/keepwatch/keepwatch/server/proxy/internal/personal"
	"github.com/keepwatch/keepwatch/server/readpath"
)

const (
	// knownFor is how long a decision is used while nothing changes, if the proxy sees changes of roles and
	// bindings; unobservedFor if it does not, and for a denial, but of a personal view.
	knownFor, unobservedFor = 2 * time.Minute, 10 * time.Second
	// settling is how long after such a change API servers may still decide by what was before it: each follows
	// the roles by itself. Until then a decision is used for settlingFor.
	settling, settlingFor = 5 * time.Second, time.Second
	// reviewFor bounds one question to the server, with its repetitions.
	reviewFor = 10 * time.Second
	// roleReason begins the reason of what a role allows.
	roleReason = "RBAC: "
)

// permissions decides as the server does, by SubjectAccessReviews. It remembers decisions. A change of a role or a
// binding makes it forget the decisions about its namespace, or all. Callers that need the same decision at the same
// time share one review: after such a change, all open watches of a user need the same ones. Few requests of a user
// that are not known to be allowed are reviewed at a time: a user without rights can ask for names without an end. It
// is safe for concurrent use.
type permissions struct {
	server authorizer.Authorizer // remembers nothing
	probe  *Probe
	made   decisions
	// ofViews has the decisions that personal views need, apart: with thousands of namespaces a user needs so many that
	// those of all others would be forgotten. A denial counts as long as what is allowed: where every namespace is asked
	// about, a client that gives up before all are decided would otherwise find nothing decided when it tries again.
	ofViews decisions
	// repeated has the decisions about open watches that had been denied. They are used for settlingFor, so that the
	// watches of a user share a review.
	repeated decisions
	asking   singleflight.Group // by the number of the last renewal, and the request
	inFlight *inFlight          // by the flow of the user; not of open watches
	// beyondRoles is true once the server has allowed something for another reason than a role: it has other
	// authorizers.
	beyondRoles atomic.Bool
	found       func() // is called when that turns out, or when the server says something else about it than before

	mu       sync.Mutex
	observed bool          // changes of roles and bindings are seen
	turned   time.Time     // when that was another answer last
	unseen   chan struct{} // closed when they no longer are; nil if nobody waits for that
	number   uint64        // of changes and renewals
	scopes
	open map[string]map[*openRequest]struct{} // by namespace
}

func newPermissions(reviews authorizationclient.AuthorizationV1Interface, server *Probe) (*permissions, error) {
	p := &permissions{
		probe: server, made: newDecisions(maxReviews, unobservedFor), ofViews: newDecisions(maxViewReviews, knownFor),
		repeated: newDecisions(maxReviews, unobservedFor), inFlight: newInFlight(),
		scopes: newScopes(), open: map[string]map[*openRequest]struct{}{}, found: func() {},
	}
	var err error
	p.server, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: authorizationclient.New(once{reviews.RESTClient()}), WebhookRetryBackoff: &reviewRetries,
	}.New()
	return p, err
}

// allowed reports whether the server allows a request, and the number for [permissions.guard]. It returns an error if
// the server does not decide, and has not decided since the last change, and ErrBusy if the server is not asked.
func (p *permissions) allowed(ctx context.Context, attributes authorizer.Attributes) (bool, uint64, error) {
	return p.decided(ctx, attributes, p.inFlight, p.made)
}

// stillAllowed is allowed for an open watch, which the server has allowed. ctx is patient.
func (p *permissions) stillAllowed(ctx context.Context, attributes authorizer.Attributes) (bool, error) {
	allowed, _, err := p.decided(ctx, attributes, nil, p.made)
	return allowed, err
}

// decided is allowed. bound is nil for what is not bounded. made has the decisions that count.
func (p *permissions) decided(ctx context.Context, attributes authorizer.Attributes, bound *inFlight,
	made decisions) (bool, uint64, error) {
	about, namespace := describe(attributes), attributes.GetNamespace()
	last, starts := made.last(about), p.probe.Starts()
	p.mu.Lock()
	number, renewed := p.number, p.renewed(namespace)
	lifetime := unobservedFor
	switch {
	case p.settles(namespace):
		lifetime = settlingFor
	case p.observed && last.allowed:
		lifetime = knownFor
	case p.observed && last.starts == starts: // a server that started denied what it allows
		lifetime = made.denialsFor
	}
	p.mu.Unlock()
	if last.number >= renewed && time.Since(last.at) < lifetime {
		return last.allowed, last.number, nil
	}
	if last.allowed {
		bound = nil
	}
	allowed, err := p.ask(ctx, attributes, fmt.Sprintf("%d %x", renewed, about), bound, func(allowed bool) {
		made.add(about, remembered{allowed, time.Now(), number, starts})
	})
	if (isOutage(err) || errors.Is(err, ErrBusy)) && p.counts(last, namespace) {
		return true, number, nil
	}
	return allowed, number, err
}

// counts reports whether a decision allows a request that the server is not asked about, or does not answer.
func (p *permissions) counts(last remembered, namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return last.allowed && last.number >= p.changed(namespace) && time.Since(last.at) < outageFor
}

// confirmed is allowed for an open watch that is denied. The server is asked again, and must be ready and decide.
func (p *permissions) confirmed(ctx context.Context, attributes authorizer.Attributes, made decisions) (bool, error) {
	if err := p.probe.Ready(ctx); err != nil {
		return false, err
	}
	about, namespace := describe(attributes), attributes.GetNamespace()
	last, starts := p.repeated.last(about), p.probe.Starts()
	p.mu.Lock()
	number, renewed := p.number, p.renewed(namespace)
	p.mu.Unlock()
	if last.number >= renewed && time.Since(last.at) < settlingFor {
		return last.allowed, nil
	}
	return p.ask(ctx, attributes, fmt.Sprintf("%d again %x", renewed, about), nil, func(allowed bool) {
		now := remembered{allowed, time.Now(), number, starts}
		made.add(about, now)
		p.repeated.add(about, now)
	})
}

// ask asks the server, and passes its decision to remember. Callers with the same key at the same time share the
// answer, which does not end with the first of them. They wait alike: patient and bounded ones share no answer with
// others.
func (p *permissions) ask(ctx context.Context, attributes authorizer.Attributes, key string, bound *inFlight,
	remember func(allowed bool)) (bool, error) {
	began := time.Now()
	key = fmt.Sprint(key, isPatient(ctx), bound != nil)
	answer, err, _ := p.asking.Do(key, func() (any, error) {
		if bound != nil {
			release, err := bound.acquire(context.WithoutCancel(ctx), readpath.Flow(attributes.GetUser()))
			if err != nil {
				return reviewed{}, err
			}
			defer release()
		}
		ctx, cancel, err := p.probe.reviewingFor(ctx, "user "+readpath.Flow(attributes.GetUser()))
		left := time.Now()
		if err != nil {
			return reviewed{left: left}, err
		}
		defer cancel()
		decision, why, err := p.server.Authorize(ctx, attributes)
		allowed := err == nil && decision == authorizer.DecisionAllow
		if allowed && isBeyondRoles(attributes, why) {
			p.foundBeyondRoles()
		}
		if err == nil {
			remember(allowed)
		}
		return reviewed{allowed, left}, err
	})
	addQueueTime(ctx, began, answer.(reviewed).left)
	return answer.(reviewed).allowed, err
}

// reviewed is the answer to a review, which has left the queue at a time.
type reviewed struct {
	allowed bool
	left    time.Time
}

// foundBeyondRoles records that the server decides by more than roles.
func (p *permissions) foundBeyondRoles() {
	if p.beyondRoles.CompareAndSwap(false, true) {
		p.found()
	}
}

// isBeyondRoles reports whether the server has allowed a request for another reason than a role. A webhook need not
// give any reason; the server gives none for what it allows its administrators, its nodes, and everybody on paths such
// as /healthz.
func isBeyondRoles(a authorizer.Attributes, why string) bool {
	groups := a.GetUser().GetGroups()
	if why == "" {
		return a.IsResourceRequest() && !slices.Contains(groups, user.SystemPrivilegedGroup) &&
			!slices.Contains(groups, user.NodesGroup)
	}
	return !strings.HasPrefix(why, roleReason)
}

// digest is a request's, as far as a decision may depend on it. Its size does not depend on the request: a caller with
// no rights at all can send names and selectors of a megabyte. It has what the user is, and not the value that says so:
// each review of a token makes another value, and a later user's may be where an earlier one's was in memory.
type digest [sha256.Size]byte

// describe returns the digest of a request. Strings are quoted, so that no value of one field reads as another field.
func describe(a authorizer.Attributes) digest {
	h := sha256.New()
	labels, labelError := a.GetLabelSelector()
	fields, fieldError := a.GetFieldSelector()
	personal.WriteUser(h, a.GetUser())
	fmt.Fprintf(h, " %v %q %q %q %q %q %q %q %q", a.IsResourceRequest(), a.GetPath(), a.GetVerb(), a.GetAPIGroup(),
		a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName())
	for _, r := range labels {
		fmt.Fprintf(h, " label %q %q %q", r.Key(), r.Operator(), r.ValuesUnsorted())
	}
	for _, r := range fields {
		fmt.Fprintf(h, " field %q %q %q", r.Field, r.Operator, r.Value)
	}
	fmt.Fprintf(h, " %q %q", fmt.Sprint(labelError), fmt.Sprint(fieldError))
	return digest(h.Sum(nil))
}
