package services

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

var (
	families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	policies = []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack,
		corev1.IPFamilyPolicySingleStack}
)

// ValidateClusterIPs checks the form of clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy, and that they agree. old
// is the stored Service, or nil for a new one: an IP that was stored is valid.
func ValidateClusterIPs(s, old *corev1.Service) (errs field.ErrorList) {
	if !needsClusterIP(s) {
		return nil
	}
	ips := s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP == "" && len(ips) > 0:
		errs = append(errs, field.Invalid(atClusterIPs, ips, "must be empty when `clusterIP` is not specified"))
	case s.Spec.ClusterIP != "" && len(ips) == 0:
		errs = append(errs, field.Required(atClusterIPs, ""))
	case s.Spec.ClusterIP != "" && ips[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(atClusterIPs, ips, "first value must match `clusterIP`"))
	}
	errs = append(errs, validateFamilies(s)...)
	invalidIPs := validateIPs(ips, old)
	errs = append(errs, invalidIPs...)
	if len(ips) > 2 {
		errs = append(errs, field.Invalid(atClusterIPs, ips, "may only hold up to 2 values"))
	}
	if len(invalidIPs) > 0 {
		return errs
	}
	if len(ips) > 1 {
		if both, err := netutils.IsDualStackIPStrings(ips); err == nil && !both {
			errs = append(errs, field.Invalid(atClusterIPs, ips, "may specify no more than one IP for each IP family"))
		}
	}
	if IsHeadless(s) {
		return errs
	}
	for i := range min(len(ips), len(s.Spec.IPFamilies)) {
		if family := s.Spec.IPFamilies[i]; slices.Contains(families, family) && family != familyOfIP(ips[i]) {
			errs = append(errs, field.Invalid(atClusterIPs.Index(i), ips[i],
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i)))
		}
	}
	return errs
}

// validateFamilies checks the values of ipFamilies and ipFamilyPolicy.
func validateFamilies(s *corev1.Service) (errs field.ErrorList) {
	seen := sets.New[corev1.IPFamily]()
	for i, family := range s.Spec.IPFamilies {
		if !slices.Contains(families, family) {
			errs = append(errs, field.NotSupported(atFamilies.Index(i), family, families))
		}
		if seen.Has(family) {
			errs = append(errs, field.Duplicate(atFamilies.Index(i), family))
		}
		seen.Insert(family)
	}
	if policy := s.Spec.IPFamilyPolicy; policy != nil && !slices.Contains(policies, *policy) {
		errs = append(errs, field.NotSupported(atPolicy, policy, policies))
	}
	return errs
}

// validateIPs checks that each IP is one, or that the only one is None.
func validateIPs(ips []string, old *corev1.Service) (errs field.ErrorList) {
	var stored []string
	if old != nil {
		stored = old.Spec.ClusterIPs
	}
	for i, ip := range ips {
		switch {
		case i > 0 || ip != corev1.ClusterIPNone:
			errs = append(errs, validation.IsValidIPForLegacyField(atClusterIPs.Index(i), ip, true, stored)...)
		case len(ips) > 1:
			errs = append(errs, field.Invalid(atClusterIPs, ips, "'None' must be the first and only value"))
		}
	}
	return errs
}

// ValidateUpdate checks that an update changes no cluster IP, family or port of health checks, unless the type of the
// Service changes from or to ExternalName; a second IP and family may be added or removed.
func ValidateUpdate(s, old *corev1.Service) (errs field.ErrorList) {
	if needsClusterIP(s) && needsClusterIP(old) {
		errs = append(errs, validateChangedIPs(s, old)...)
		errs = append(errs, validateChangedFamilies(s, old)...)
	}
	if NeedsHealthCheck(s) && NeedsHealthCheck(old) && old.Spec.HealthCheckNodePort != 0 &&
		s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

func validateChangedIPs(s, old *corev1.Service) (errs field.ErrorList) {
	is, was := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	if IsHeadless(s) && IsHeadless(old) {
		return nil
	}
	const unchangeable = "may not change once set"
	switch {
	case len(is) == len(was):
		for i, ip := range was {
			if is[i] != ip {
				errs = append(errs, field.Invalid(atClusterIPs.Index(i), is, unchangeable))
			}
		}
	case len(is) == 0:
		errs = append(errs, field.Invalid(atClusterIPs.Index(0), is, "primary clusterIP can not be unset"))
	case len(was) > 0 && is[0] != was[0]:
		errs = append(errs, field.Invalid(atClusterIPs.Index(0), is, unchangeable))
	}
	if len(is) == 1 && len(was) == 2 && !singleStack(s) {
		errs = append(errs, field.Invalid(atPolicy, s.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	return errs
}

func validateChangedFamilies(s, old *corev1.Service) (errs field.ErrorList) {
	is, was := s.Spec.IPFamilies, old.Spec.IPFamilies
	if IsHeadless(s) || IsHeadless(old) { // its families may change
		return nil
	}
	const unchangeable = "may not change once set"
	switch {
	case len(is) == len(was):
		for i, family := range was {
			if is[i] != family {
				errs = append(errs, field.Invalid(atFamilies.Index(0), is, unchangeable))
			}
		}
	case len(is) > 0 && len(was) > 0 && is[0] != was[0]:
		errs = append(errs, field.Invalid(atFamilies.Index(0), s.Spec.ClusterIPs, unchangeable))
	}
	if len(is) == 1 && len(was) == 2 && !singleStack(s) {
		errs = append(errs, field.Invalid(atPolicy, s.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}
