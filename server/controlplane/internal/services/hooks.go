package services

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// Addresses gives Services their addresses before they are written. It can be used by several goroutines.
type Addresses struct{ allocator *allocator }

// NewAddresses returns the addresses of ranges.
func NewAddresses(ranges Ranges, find Find) *Addresses {
	return &Addresses{newAllocator(ranges, find)}
}

// BeginCreate gives a new Service what it needs. It is a hook of the Service's store, before validation.
func (a *Addresses) BeginCreate(ctx context.Context, obj runtime.Object,
	options *metav1.CreateOptions) (registry.FinishFunc, error) {
	s := obj.(*corev1.Service)
	if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" { // of a client that does not know clusterIPs
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if errs := a.setFamilies(s, nil); len(errs) > 0 {
		return nil, invalid(s, errs)
	}
	return a.allocator.choose(ctx, s, dryrun.IsDryRun(options.DryRun), func(c *choice) error {
		if err := giveClusterIPs(c, s, nil); err != nil {
			return err
		}
		if err := giveNodePorts(c, s); err != nil {
			return err
		}
		return giveHealthCheckPort(c, s, false)
	})
}

// BeginUpdate gives a Service what it needs and did not have. What the client has left out stays as it was. It is a
// hook of the Service's store, before validation.
func (a *Addresses) BeginUpdate(ctx context.Context, obj, before runtime.Object,
	options *metav1.UpdateOptions) (registry.FinishFunc, error) {
	s, old := obj.(*corev1.Service), before.(*corev1.Service)
	unchanged := sameClusterIPs(s, old)
	Complete(old)
	restoreClusterIPs(s, old)
	restoreNodePorts(s, old)
	matchClusterIPs(s, old)
	wanted := s.Spec.DeepCopy()
	unchanged = unchanged || sameClusterIPs(s, old)
	errs := a.setFamilies(s, old)
	if len(errs) > 0 && !unchanged {
		return nil, invalid(s, errs)
	}
	return a.allocator.choose(ctx, s, dryrun.IsDryRun(options.DryRun), func(c *choice) error {
		if len(errs) > 0 {
			s.Spec = *wanted // stored with other ranges, or by an earlier version: it stays as it is
		} else if err := giveClusterIPs(c, s, old); unchanged && (apierrors.IsInvalid(err) ||
			apierrors.IsInternalError(err)) {
			s.Spec = *wanted
		} else if err != nil {
			return err
		}
		if err := giveMissingNodePorts(c, s, old); err != nil {
			return err
		}
		return giveHealthCheckPort(c, s, NeedsHealthCheck(old) && old.Spec.HealthCheckNodePort != 0)
	})
}

// AfterCreate is a hook of the Service's store, after the write.
func (a *Addresses) AfterCreate(obj runtime.Object, options *metav1.CreateOptions) {
	a.written(obj.(*corev1.Service), options.DryRun)
}

// AfterUpdate is a hook of the Service's store, after the write.
func (a *Addresses) AfterUpdate(obj runtime.Object, options *metav1.UpdateOptions) {
	a.written(obj.(*corev1.Service), options.DryRun)
}

func (a *Addresses) written(s *corev1.Service, dryRun []string) {
	if !dryrun.IsDryRun(dryRun) {
		a.allocator.written(nameOf(s), addressesOf(s))
	}
}

func invalid(s *corev1.Service, errs field.ErrorList) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), s.Name, errs)
}
