package access

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Control decides who sent a request, and whether the server allows it. It is safe for concurrent use.
type Control struct {
	Probe        *Probe        // runs while the control does
	own          *ownIdentity  // nil without a token of the proxy's own
	certificates *certificates // nil without Certificates
	tokens       *tokens
	permissions  *permissions
	roles        *roles
	namespaces   *namespaces  // nil without Personal
	authorizers  *authorizers // nil without Personal
}

// Options are what a control accepts and follows.
type Options struct {
	OwnToken     string // whose bearer is the proxy; there is none if it is empty
	Certificates bool   // callers may have a certificate, or come from a front proxy
	Personal     bool   // roles are followed with their subjects, and namespaces
}

// New returns a control that asks a server. It sends no request; Run does.
func New(server *rest.Config, client kubernetes.Interface, o Options) (_ *Control, err error) {
	c := &Control{Probe: newProbe(client.Discovery().RESTClient())}
	if o.OwnToken != "" {
		c.own = newOwnIdentity(o.OwnToken, client.AuthenticationV1(), c.Probe)
	}
	if o.Certificates {
		if c.certificates, err = newCertificates(client); err != nil {
			return nil, err
		}
	}
	c.tokens = newTokens(client.AuthenticationV1(), c.Probe)
	if c.permissions, err = newPermissions(client.AuthorizationV1(), c.Probe); err != nil {
		return nil, err
	}
	if c.roles, err = newRoles(server, c.permissions, o.Personal); err != nil {
		return nil, err
	}
	if o.Personal {
		c.namespaces, err = newNamespaces(server, c.permissions)
		c.authorizers = newAuthorizers(client.AuthorizationV1(), c.permissions)
	}
	return c, err
}

// Run probes the server, and follows what decisions depend on, until ctx ends.
func (c *Control) Run(ctx context.Context) {
	defer c.permissions.close()
	var running sync.WaitGroup
	running.Go(func() { c.roles.run(ctx) })
	running.Go(func() { c.Probe.run(ctx) })
	running.Go(func() { c.namespaces.run(ctx) })
	running.Go(func() { c.authorizers.run(ctx) })
	running.Go(func() { c.certificates.run(ctx) })
	running.Wait()
}

// IsOwn reports whether a request has the proxy's own token.
func (c *Control) IsOwn(q *http.Request) bool { return c.own.sent(q) }

// Answered reports whether the server has ever answered, be it that the proxy may not read roles, and the authorities
// of certificates are known, unless the proxy may not read them: before, requests with a certificate are answered 503.
func (c *Control) Answered() bool { return c.roles.answered() && c.certificates.answered() }

// ClientAuthorities returns the authorities of certificates, nil without [Options].Certificates.
func (c *Control) ClientAuthorities() dynamiccertificates.CAContentProvider {
	if c.certificates == nil {
		return nil
	}
	return dynamiccertificates.NewUnionCAContentProvider(c.certificates.clients, c.certificates.frontProxies)
}

// Decision is what the server says to a caller's request.
type Decision struct {
	Allowed    bool
	by         *Caller
	attributes authorizer.Attributes
	number     uint64 // of the last change that the server knew of
}

// Decide returns whether the server allows a request to its caller. It returns an error if the server does not decide,
// and ErrBusy if it is not asked because the caller has too many reviews in flight.
func (c *Control) Decide(ctx context.Context, by *Caller, attributes authorizer.Attributes) (Decision, error) {
	allowed, number, err := c.permissions.allowed(ctx, attributes)
	return Decision{allowed, by, attributes, number}, err
}

// Guard returns a context for an open request that a decision allows: it ends when the server no longer knows the
// caller, or no longer allows the request, when the caller's credentials expire, and after longestOpen. The caller of
// guard calls end at the end of the request.
func (c *Control) Guard(ctx context.Context, d Decision) (guarded context.Context, end func()) {
	return c.permissions.guard(ctx, d.by, d.attributes, d.number)
}

// GuardIdentity is guard for a personal view, which itself follows what the server allows. The context ends when the
// caller is no longer known, or is another user: with other groups.
func (c *Control) GuardIdentity(ctx context.Context, by *Caller) (guarded context.Context, end func()) {
	return c.permissions.guardIdentity(ctx, by)
}

// Authorize implements authorizer.UnconditionalAuthorizer, for callers who impersonate users.
func (c *Control) Authorize(ctx context.Context,
	attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	allowed, _, err := c.permissions.allowed(ctx, attributes)
	switch {
	case err != nil:
		return authorizer.DecisionNoOpinion, "the API server does not decide whether this is allowed", err
	case !allowed:
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// Starts reports whether the server starts: changes of roles are not seen, and it is not ready. Its refusals do not
// count then.
func (c *Control) Starts(ctx context.Context) bool {
	return !c.permissions.isObserved() && c.Probe.Ready(ctx) != nil
}

// Cluster returns what is followed for personal views.
func (c *Control) Cluster() Cluster { return Cluster{c.namespaces, c.roles} }

// Reviews returns the server's decisions for personal views.
func (c *Control) Reviews() Reviews { return Reviews{c.permissions, c.authorizers} }

// OnChanges sets what is called after changes, before run: namespaces with those that have come or gone, or with none
// if any may have, and roles with the subjects that changes of roles and bindings concern, or with false if that may
// be anybody. unseen is called when changes of roles and bindings are no longer seen.
func (c *Control) OnChanges(namespaces func(...string), roles func(subjects map[string]bool, ok bool), unseen func()) {
	c.namespaces.changed, c.roles.touched, c.roles.unseen = namespaces, roles, unseen
	c.permissions.found = func() { roles(nil, false) }
}

// NamespacesRefused reports whether the proxy may not list the namespaces.
func (c *Control) NamespacesRefused() bool { return c.namespaces.refused() }
