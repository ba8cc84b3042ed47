package operator

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
)

// kind is a discovered resource.
type kind struct {
	resource   schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
	// subresource: the status had an endpoint of its own at the start.
	subresource bool
}

// apiServer says what an API server has: apiresources.Server.
type apiServer interface {
	Versions(ctx context.Context, group string) ([]string, error)
	Resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error)
}

// discoveryWaits are the waits between two requests for the operator's resource.
var discoveryWaits = backoff.Exponential{First: 500 * time.Millisecond, Max: 30 * time.Second}

// find asks the server for the operator's resource until the server returns it. After the
// startup deadline, find returns the failures that reflector.EndsStartup reports. It retries
// other failures without limit, like a server that cannot be reached.
func (op *Operator) find(ctx context.Context, server apiServer) (kind, error) {
	deadline := time.Now().Add(op.set.startupDeadline)
	for attempt := 0; ; attempt++ {
		k, err := op.look(ctx, server)
		if err == nil {
			return k, nil
		}
		wait := discoveryWaits.Wait(attempt)
		if op.set.startupDeadline >= 0 && reflector.EndsStartup(kube.FailureOf("discover "+op.name, err).Kind) {
			left := time.Until(deadline)
			if left <= 0 {
				return kind{}, fmt.Errorf("operator of %s: %w, for %v", op.name, err, op.set.startupDeadline)
			}
			wait = min(wait, left)
		}
		op.logger().Warn("waiting for the resource", "resource", op.name, "error", err)
		if pause.For(ctx, wait) != nil {
			return kind{}, context.Cause(ctx)
		}
	}
}

// look sends the discovery requests once. Like kubectl it takes "a.b.c" for the resource a of version b first.
func (op *Operator) look(ctx context.Context, server apiServer) (kind, error) {
	if op.gvr != nil {
		k, err := lookIn(ctx, server, op.gvr.GroupVersion(), op.gvr.Resource)
		if !apierrors.IsNotFound(err) {
			return k, err
		}
	}
	versions, err := server.Versions(ctx, op.resource.Group)
	if err != nil {
		return kind{}, err
	}
	for _, v := range versions {
		gv := schema.GroupVersion{Group: op.resource.Group, Version: v}
		if k, err := lookIn(ctx, server, gv, op.resource.Resource); !apierrors.IsNotFound(err) {
			return k, err
		}
	}
	return kind{}, notFound(op.resource)
}

func lookIn(ctx context.Context, server apiServer, gv schema.GroupVersion, name string) (kind, error) {
	served, err := server.Resources(ctx, gv)
	if err != nil {
		return kind{}, err
	}
	var k kind
	for _, r := range served {
		switch r.Name {
		case name:
			k.resource, k.kind, k.namespaced = gv.WithResource(name), gv.WithKind(r.Kind), r.Namespaced
		case name + "/status":
			k.subresource = true
		}
	}
	if k.resource.Empty() {
		return kind{}, notFound(gv.WithResource(name).GroupResource())
	}
	return k, nil
}

func notFound(resource schema.GroupResource) error {
	err := apierrors.NewNotFound(resource, "")
	err.ErrStatus.Message = fmt.Sprintf("the server has no resource %s", resource)
	return err
}
