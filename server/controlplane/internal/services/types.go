package services

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// IsHeadless reports whether a Service has no cluster IP because its user wants none.
func IsHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// IsExternal reports whether a Service can be reached from outside of a cluster.
func IsExternal(s *corev1.Service) bool {
	return usesNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// NeedsHealthCheck reports whether a Service has a node port for the health checks of load balancers.
func NeedsHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// needsClusterIP reports whether the type of a Service has cluster IPs. The value None counts as one.
func needsClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

// hasClusterIPs reports whether a Service has IPs.
func hasClusterIPs(s *corev1.Service) bool {
	return needsClusterIP(s) && !IsHeadless(s) && len(s.Spec.ClusterIPs) > 0
}

// usesNodePorts reports whether the ports of a Service may have node ports.
func usesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// needsNodePorts reports whether each port of a Service gets a node port.
func needsNodePorts(s *corev1.Service) bool {
	allocate := s.Spec.AllocateLoadBalancerNodePorts
	return usesNodePorts(s) && (s.Spec.Type == corev1.ServiceTypeNodePort || allocate == nil || *allocate)
}

// ClearByType clears the fields of an updated Service that its new type does not have, unless the client has changed
// them, too: then the validation refuses them. The status of its load balancer goes with the type.
func ClearByType(s, old *corev1.Service) {
	is, was := &s.Spec, &old.Spec
	if needsClusterIP(old) && !needsClusterIP(s) {
		if is.ClusterIP == was.ClusterIP && slices.Equal(is.ClusterIPs, was.ClusterIPs) {
			is.ClusterIP, is.ClusterIPs = "", nil
		}
		clearUnchanged(&is.IPFamilies, was.IPFamilies)
		clearUnchanged(&is.IPFamilyPolicy, was.IPFamilyPolicy)
	}
	if usesNodePorts(old) && !usesNodePorts(s) && hasNoNewNodePort(s, old) {
		for i := range is.Ports {
			is.Ports[i].NodePort = 0
		}
	}
	if NeedsHealthCheck(old) && !NeedsHealthCheck(s) {
		clearUnchanged(&is.HealthCheckNodePort, was.HealthCheckNodePort)
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && is.Type != corev1.ServiceTypeLoadBalancer {
		clearUnchanged(&is.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts)
		clearUnchanged(&is.LoadBalancerClass, was.LoadBalancerClass)
	}
	if IsExternal(old) && !IsExternal(s) {
		clearUnchanged(&is.ExternalTrafficPolicy, was.ExternalTrafficPolicy)
	}
	if is.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

func clearUnchanged[T any](is *T, was T) {
	if equality.Semantic.DeepEqual(*is, was) {
		var zero T
		*is = zero
	}
}

// hasNoNewNodePort reports whether all node ports of a Service are old ones.
func hasNoNewNodePort(s, old *corev1.Service) bool {
	had := nodePortsOf(old)
	return !slices.ContainsFunc(nodePortsOf(s), func(port int32) bool { return !slices.Contains(had, port) })
}
