package access

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/proxy/internal/personal"
)

// Cluster is what is followed of the server's namespaces and roles, as personal views need it.
type Cluster struct {
	namespaces *namespaces
	roles      *roles
}

// Namespaces implements personal.Cluster.
func (c Cluster) Namespaces() (map[string]keepwatch.UID, error) { return c.namespaces.uids() }

// rolesCountFor is how long roles count whose changes are not seen, to say which namespaces a personal view may have.
const rolesCountFor = time.Minute

// Roles implements personal.Cluster.
func (c Cluster) Roles() (roles *personal.Roles, seen bool) {
	seen, since := c.roles.permissions.observedSince()
	if !seen && (since.IsZero() || time.Since(since) >= rolesCountFor) {
		return nil, false
	}
	return c.roles.granted, seen
}

// DecidedFor implements personal.Cluster.
func (c Cluster) DecidedFor() time.Duration { return c.roles.permissions.decidedFor() }

// Reviews is permissions as personal views need them. Views bound their reviews themselves: those of open watches are
// patient, as other watches' are, and have no bound by user.
type Reviews struct {
	permissions *permissions
	authorizers *authorizers
}

// Decide implements personal.Reviews.
func (r Reviews) Decide(ctx context.Context, a authorizer.Attributes, open bool) (bool, error) {
	bound := r.permissions.inFlight
	if open {
		ctx, _ = patient(ctx)
		bound = nil
	}
	allowed, _, err := r.permissions.decided(ctx, a, bound, r.permissions.ofViews)
	return allowed, err
}

// Confirm implements personal.Reviews.
func (r Reviews) Confirm(ctx context.Context, a authorizer.Attributes, open bool) (bool, error) {
	if open {
		ctx, _ = patient(ctx)
	}
	return r.permissions.confirmed(ctx, a, r.permissions.ofViews)
}

// Ready implements personal.Reviews.
func (r Reviews) Ready(ctx context.Context) error { return r.permissions.probe.Ready(ctx) }

// BeyondRoles implements personal.Reviews.
func (r Reviews) BeyondRoles() bool { return r.authorizers.beyondRoles() }
