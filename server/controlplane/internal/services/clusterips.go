package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

var atClusterIPs = field.NewPath("spec", "clusterIPs")

// Complete sets clusterIPs, ipFamilies and ipFamilyPolicy of a Service that was written before these fields existed,
// and clears the policy that a Service without addresses does not have.
func Complete(s *corev1.Service) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = nil
	}
	if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if !hasClusterIPs(s) || len(s.Spec.IPFamilies) > 0 {
		return
	}
	for _, ip := range s.Spec.ClusterIPs {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, familyOfIP(ip))
	}
	policy := corev1.IPFamilyPolicySingleStack
	if len(s.Spec.IPFamilies) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	s.Spec.IPFamilyPolicy = &policy
}

// sameClusterIPs reports whether an update leaves the cluster IPs of a Service, and what they depend on.
func sameClusterIPs(s, old *corev1.Service) bool {
	is, was := &s.Spec, &old.Spec
	return is.Type == was.Type && (len(is.Selector) == 0) == (len(was.Selector) == 0) && is.ClusterIP == was.ClusterIP &&
		slices.Equal(is.ClusterIPs, was.ClusterIPs) &&
		slices.Equal(is.IPFamilies, was.IPFamilies) && equality.Semantic.DeepEqual(is.IPFamilyPolicy, was.IPFamilyPolicy)
}

// restoreClusterIPs sets the cluster IPs that a client has left out to what they were.
func restoreClusterIPs(s, old *corev1.Service) {
	if !needsClusterIP(s) || !needsClusterIP(old) {
		return
	}
	if s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = old.Spec.ClusterIP
	}
	if len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
	}
}

// matchClusterIPs sets clusterIPs by a clusterIP that a client has changed, if the client does not know clusterIPs.
func matchClusterIPs(s, old *corev1.Service) {
	is, was := &s.Spec, &old.Spec
	if len(is.ClusterIPs) == 0 && is.ClusterIP == was.ClusterIP {
		is.ClusterIPs = slices.Clone(was.ClusterIPs)
	}
	if is.ClusterIP == was.ClusterIP || !slices.Equal(is.ClusterIPs, was.ClusterIPs) {
		return
	}
	is.ClusterIPs = nil
	if is.ClusterIP != "" {
		is.ClusterIPs = []string{is.ClusterIP}
	}
}

// giveClusterIPs takes an IP for each family that has none yet. The IPs that old has are its own. The validation
// refuses to change one, or to give a headless Service one.
func giveClusterIPs(c *choice, s, old *corev1.Service) error {
	if !needsClusterIP(s) || IsHeadless(s) {
		return nil
	}
	had := 0
	if old != nil && needsClusterIP(old) {
		if IsHeadless(old) {
			return nil
		}
		had = len(old.Spec.ClusterIPs)
	}
	for len(s.Spec.ClusterIPs) < len(s.Spec.IPFamilies) {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "")
	}
	for i := had; i < len(s.Spec.IPFamilies); i++ {
		ip, err := giveClusterIP(c, s, s.Spec.IPFamilies[i], s.Spec.ClusterIPs[i])
		if err != nil {
			return err
		}
		s.Spec.ClusterIPs[i] = ip
	}
	if len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return nil
}

// giveClusterIP takes the IP that the client wants, or any of a family.
func giveClusterIP(c *choice, s *corev1.Service, family corev1.IPFamily, wanted string) (string, error) {
	if wanted == "" {
		prefix, ok := c.allocator.ranges.of(family)
		if !ok {
			return "", invalid(s, field.ErrorList{field.Invalid(field.NewPath("spec", "ipFamilies"), s.Spec.IPFamilies,
				"not configured on this cluster")})
		}
		ip, err := c.nextIP(prefix)
		if errors.Is(err, errFull) {
			return "", apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", s.Name, err))
		}
		return ip.String(), err
	}
	ip, err := netip.ParseAddr(wanted)
	if err == nil {
		err = c.takeIP(ip)
	}
	if err == nil || isOfRequest(err) {
		return wanted, err
	}
	return "", invalid(s, field.ErrorList{field.Invalid(atClusterIPs, s.Spec.ClusterIPs,
		fmt.Sprintf("failed to allocate IP %v: %v", wanted, err))})
}

// isOfRequest reports whether an error is of the request and not of what it asks for: the Services could not be read.
func isOfRequest(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.ReasonForError(err) != ""
}

func familyOfIP(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
