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

// Roles implements personal.Cluster.
func (c Cluster) Roles() *personal.Roles {
	if !c.roles.permissions.isObserved() {
		return nil
	}
	return c.roles.granted
}

// DecidedFor implements personal.Cluster.
func (c Cluster) DecidedFor() time.Duration { return c.roles.permissions.decidedFor() }

// Reviews is permissions as personal views need them. They are patient: views follow changes as open watches do, and
// bound their reviews themselves.
type Reviews struct{ permissions *permissions }

// Decide implements personal.Reviews.
func (r Reviews) Decide(ctx context.Context, a authorizer.Attributes) (bool, error) {
	ctx, _ = patient(ctx)
	allowed, _, err := r.permissions.allowed(ctx, a)
	return allowed, err
}

// Confirm implements personal.Reviews.
func (r Reviews) Confirm(ctx context.Context, a authorizer.Attributes) (bool, error) {
	ctx, _ = patient(ctx)
	return r.permissions.confirmed(ctx, a)
}

// BeyondRoles implements personal.Reviews.
func (r Reviews) BeyondRoles() bool { return r.permissions.beyondRoles.Load() }
