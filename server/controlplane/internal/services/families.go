package services

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	atPolicy   = field.NewPath("spec", "ipFamilyPolicy")
	atFamilies = field.NewPath("spec", "ipFamilies")
)

// setFamilies sets ipFamilyPolicy and ipFamilies of a Service as far as its client has not, and checks them. old is the
// stored Service, or nil for a new one. A change of the ranges does not change the families of stored Services.
func (a *Addresses) setFamilies(s, old *corev1.Service) field.ErrorList {
	if !needsClusterIP(s) || prefersAsBefore(s, old) {
		return nil
	}
	setPolicy(s, old)
	if errs := ValidateClusterIPs(s, old); len(errs) > 0 {
		return errs
	}
	errs := releaseSecond(s, old)
	if singleStack(s) {
		const detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified"
		if len(s.Spec.ClusterIPs) == 2 {
			errs = append(errs, field.Invalid(atPolicy, s.Spec.IPFamilyPolicy, fmt.Sprintf(detail, "cluster IPs")))
		}
		if len(s.Spec.IPFamilies) == 2 {
			errs = append(errs, field.Invalid(atPolicy, s.Spec.IPFamilyPolicy, fmt.Sprintf(detail, "IP families")))
		}
	}
	errs = append(errs, a.familiesOfIPs(s)...)
	switch {
	case len(errs) > 0:
		return errs
	case IsHeadless(s) && len(s.Spec.Selector) == 0: // its endpoints may have any family
		a.addFamilies(s, true)
		return nil
	}
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(a.allocator.ranges.prefixes) < 2 {
		errs = append(errs, field.Invalid(atPolicy, s.Spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services"))
	}
	for i, family := range s.Spec.IPFamilies {
		if _, ok := a.allocator.ranges.of(family); !ok {
			errs = append(errs, field.Invalid(atFamilies.Index(i), family, "not configured on this cluster"))
		}
	}
	if len(errs) == 0 {
		a.addFamilies(s, len(a.allocator.ranges.prefixes) == 2)
	}
	return errs
}

// prefersAsBefore reports whether an update leaves the IPs and families of a Service that prefers two. It gets no
// second IP, then, when the server has got a second range since.
func prefersAsBefore(s, old *corev1.Service) bool {
	prefers := func(policy *corev1.IPFamilyPolicy) bool {
		return policy != nil && *policy == corev1.IPFamilyPolicyPreferDualStack
	}
	return old != nil && s.Spec.Type == old.Spec.Type && prefers(s.Spec.IPFamilyPolicy) &&
		(old.Spec.IPFamilyPolicy == nil || prefers(old.Spec.IPFamilyPolicy)) &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

// setPolicy sets a policy that the client has left out: to the old one, or by the kind of Service.
func setPolicy(s, old *corev1.Service) {
	if s.Spec.IPFamilyPolicy != nil {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		policy = *old.Spec.IPFamilyPolicy
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	s.Spec.IPFamilyPolicy = &policy
}

// releaseSecond removes the second IP and family of a Service whose policy is now SingleStack. Without that policy, it
// returns errors for removed ones.
func releaseSecond(s, old *corev1.Service) (errs field.ErrorList) {
	if old == nil {
		return nil
	}
	ips, families := len(s.Spec.ClusterIPs), len(s.Spec.IPFamilies)
	if singleStack(s) {
		if ips > 1 && slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
		}
		if families > 1 && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies) {
			s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
		}
		return nil
	}
	if ips > 0 && ips < len(old.Spec.ClusterIPs) {
		errs = append(errs, field.Invalid(atPolicy, s.Spec.IPFamilyPolicy,
			"must be 'SingleStack' to release the secondary cluster IP"))
	}
	if families > 0 && families < len(old.Spec.IPFamilies) {
		errs = append(errs, field.Invalid(atPolicy, s.Spec.IPFamilyPolicy,
			"must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// familiesOfIPs adds the families of the IPs that the client has chosen.
func (a *Addresses) familiesOfIPs(s *corev1.Service) (errs field.ErrorList) {
	if IsHeadless(s) {
		return nil
	}
	for i, ip := range s.Spec.ClusterIPs {
		if i < len(s.Spec.IPFamilies) {
			continue
		}
		family := familyOfIP(ip)
		if _, ok := a.allocator.ranges.of(family); !ok {
			errs = append(errs, field.Invalid(atClusterIPs.Index(i), s.Spec.ClusterIPs,
				fmt.Sprintf("%s is not configured on this cluster", family)))
			continue
		}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
	}
	return errs
}

// addFamilies adds the default family if there is none, and a second one if there may be one and the policy allows it.
func (a *Addresses) addFamilies(s *corev1.Service, second bool) {
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{familyOf(a.allocator.ranges.prefixes[0].Addr())}
	}
	if !second || singleStack(s) || len(s.Spec.IPFamilies) > 1 {
		return
	}
	other := corev1.IPv4Protocol
	if s.Spec.IPFamilies[0] == corev1.IPv4Protocol {
		other = corev1.IPv6Protocol
	}
	s.Spec.IPFamilies = append(s.Spec.IPFamilies, other)
}

func singleStack(s *corev1.Service) bool {
	return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
}
