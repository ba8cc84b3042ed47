package builtin

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// validateService checks a Service, whose addresses are given already.
func validateService(s *corev1.Service) (errs field.ErrorList) {
	at := field.NewPath("spec")
	hints, hinted := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if mode, ok := s.Annotations[corev1.AnnotationTopologyMode]; ok && hinted && mode != hints {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
			"must match annotations["+corev1.DeprecatedAnnotationTopologyAwareHints+"] when both are specified"))
	}
	if len(s.Spec.Ports) == 0 && !services.IsHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(at.Child("ports"), ""))
	}
	errs = append(errs, oneOf(at.Child("type"), s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	errs = append(errs, validateServiceType(at, s)...)
	errs = append(errs, validateServicePorts(at.Child("ports"), s.Spec.Ports)...)
	errs = append(errs, metavalidation.ValidateLabels(s.Spec.Selector, at.Child("selector"))...)
	errs = append(errs, validateSessionAffinity(at, &s.Spec)...)
	errs = append(errs, services.ValidateClusterIPs(s, nil)...)
	for i, ip := range s.Spec.ExternalIPs {
		here := at.Child("externalIPs").Index(i)
		invalid := validation.IsValidIPForLegacyField(here, ip, true, nil)
		if len(invalid) == 0 {
			invalid = validateEndpointIP(here, ip)
		}
		errs = append(errs, invalid...)
	}
	errs = append(errs, validateLoadBalancer(at, s)...)
	errs = append(errs, validateTraffic(at, s)...)
	return errs
}

// validateServiceType checks the fields that a type needs or does not have.
func validateServiceType(at *field.Path, s *corev1.Service) (errs field.ErrorList) {
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if services.IsHeadless(s) {
			errs = append(errs, field.Invalid(at.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
				"may not be set to 'None' for "+string(s.Spec.Type)+" services"))
		}
	case corev1.ServiceTypeClusterIP:
		for i, port := range s.Spec.Ports {
			if port.NodePort != 0 {
				errs = append(errs, field.Forbidden(at.Child("ports").Index(i).Child("nodePort"),
					"may not be used when `type` is 'ClusterIP'"))
			}
		}
	case corev1.ServiceTypeExternalName:
		const forbidden = "may not be set for ExternalName services"
		if len(s.Spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(at.Child("clusterIPs"), forbidden))
		}
		if len(s.Spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(at.Child("ipFamilies"), forbidden))
		}
		if s.Spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(at.Child("ipFamilyPolicy"), forbidden))
		}
		errs = append(errs, validateExternalName(at.Child("externalName"), s.Spec.ExternalName)...)
	}
	return errs
}

// validateSessionAffinity checks the affinity and its time, which has a default unless an admission policy has removed
// it.
func validateSessionAffinity(at *field.Path, s *corev1.ServiceSpec) field.ErrorList {
	errs := oneOf(at.Child("sessionAffinity"), s.SessionAffinity, corev1.ServiceAffinityClientIP,
		corev1.ServiceAffinityNone)
	if s.SessionAffinity != corev1.ServiceAffinityClientIP {
		return errs
	}
	config := s.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return append(errs, field.Required(at.Child("sessionAffinityConfig"), "when session affinity type is ClientIP"))
	}
	const longest = 86400 // seconds
	if seconds := *config.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > longest {
		errs = append(errs, field.Invalid(at.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), seconds,
			fmt.Sprintf("must be greater than 0 and less than %d", longest)))
	}
	return errs
}

// validateLoadBalancer checks the fields of load balancers, which other types may not have.
func validateLoadBalancer(at *field.Path, s *corev1.Service) (errs field.ErrorList) {
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	const forbidden = "may only be used when `type` is 'LoadBalancer'"
	annotation, annotated := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	sources, ranges := at.Child("LoadBalancerSourceRanges"), s.Spec.LoadBalancerSourceRanges
	switch {
	case len(ranges) > 0:
		for i, cidr := range ranges {
			errs = append(errs, validation.IsValidCIDRForLegacyField(sources.Index(i), strings.TrimSpace(cidr), true, nil)...)
		}
	case annotated:
		sources = field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
		if text := strings.TrimSpace(annotation); text != "" {
			for cidr := range strings.SplitSeq(text, ",") {
				errs = append(errs, validation.IsValidCIDRForLegacyField(sources, strings.TrimSpace(cidr), true, nil)...)
			}
		}
	}
	if (len(ranges) > 0 || annotated) && !balanced {
		errs = append(errs, field.Forbidden(sources, forbidden))
	}
	if s.Spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs = append(errs, field.Forbidden(at.Child("allocateLoadBalancerNodePorts"), forbidden))
	}
	switch class := s.Spec.LoadBalancerClass; {
	case class != nil && !balanced:
		errs = append(errs, field.Forbidden(at.Child("loadBalancerClass"), forbidden))
	case class != nil:
		errs = append(errs, invalids(at.Child("loadBalancerClass"), *class, validation.IsQualifiedName(*class))...)
	}
	return errs
}

// validateLoadBalancerStatus checks the addresses of a load balancer. An IP that was stored is valid.
func validateLoadBalancerStatus(s, old *corev1.Service) (errs field.ErrorList) {
	list, ingresses := field.NewPath("status", "loadBalancer", "ingress"), s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(ingresses) > 0 {
		return field.ErrorList{field.Forbidden(list, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var stored []string
	for _, ingress := range old.Status.LoadBalancer.Ingress {
		stored = append(stored, ingress.IP)
	}
	for i, ingress := range ingresses {
		at := list.Index(i)
		if ingress.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), ingress.IP, true, stored)...)
		}
		switch mode := at.Child("ipMode"); {
		case ingress.IPMode == nil: // has a default beside an IP
		case ingress.IP == "":
			errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
		default:
			errs = append(errs, oneOf(mode, *ingress.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
		if host := at.Child("hostname"); ingress.Hostname != "" {
			errs = append(errs, invalids(host, ingress.Hostname, validation.IsDNS1123Subdomain(ingress.Hostname))...)
			if netutils.ParseIPSloppy(ingress.Hostname) != nil {
				errs = append(errs, field.Invalid(host, ingress.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}

// validateTraffic checks the policies of traffic and the port of health checks.
func validateTraffic(at *field.Path, s *corev1.Service) (errs field.ErrorList) {
	external := s.Spec.ExternalTrafficPolicy
	switch {
	case services.IsExternal(s):
		errs = append(errs, oneOf(at.Child("externalTrafficPolicy"), external, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)...)
	case external != "":
		errs = append(errs, field.Invalid(at.Child("externalTrafficPolicy"), external,
			"may only be set for externally-accessible services"))
	}
	health := at.Child("healthCheckNodePort")
	switch port := s.Spec.HealthCheckNodePort; {
	case services.NeedsHealthCheck(s):
		errs = append(errs, invalids(health, port, validation.IsValidPortNum(int(port)))...)
	case port != 0:
		errs = append(errs, field.Invalid(health, port,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	if policy := s.Spec.InternalTrafficPolicy; policy != nil {
		errs = append(errs, oneOf(at.Child("internalTrafficPolicy"), *policy, corev1.ServiceInternalTrafficPolicyCluster,
			corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if distribution := s.Spec.TrafficDistribution; distribution != nil {
		errs = append(errs, oneOf(at.Child("trafficDistribution"), *distribution,
			corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

// validateExternalName checks a DNS name, which may end with a dot.
func validateExternalName(at *field.Path, name string) field.ErrorList {
	name = strings.TrimSuffix(name, ".")
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return invalids(at, name, validation.IsDNS1123Subdomain(name))
}

// validateServicePorts checks each port, and that names, numbers and node ports are unique for a protocol.
func validateServicePorts(at *field.Path, ports []corev1.ServicePort) (errs field.ErrorList) {
	names, numbers, nodePorts := map[string]bool{}, map[corev1.ServicePort]bool{}, map[corev1.ServicePort]bool{}
	for i, port := range ports {
		here := at.Index(i)
		switch {
		case port.Name != "":
			errs = append(errs, invalids(here.Child("name"), port.Name, validation.IsDNS1123Label(port.Name))...)
			if names[port.Name] {
				errs = append(errs, field.Duplicate(here.Child("name"), port.Name))
			}
			names[port.Name] = true
		case len(ports) > 1:
			errs = append(errs, field.Required(here.Child("name"), ""))
		}
		errs = append(errs, invalids(here.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))...)
		errs = append(errs, oneOf(here.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP,
			corev1.ProtocolUDP)...)
		errs = append(errs, portNumberOrName(here.Child("targetPort"), port.TargetPort)...)
		if port.AppProtocol != nil {
			errs = append(errs, invalids(here.Child("appProtocol"), *port.AppProtocol,
				validation.IsQualifiedName(*port.AppProtocol))...)
		}
		if node := (corev1.ServicePort{Protocol: port.Protocol, NodePort: port.NodePort}); port.NodePort != 0 {
			if nodePorts[node] {
				errs = append(errs, field.Duplicate(here.Child("nodePort"), port.NodePort))
			}
			nodePorts[node] = true
		}
		number := corev1.ServicePort{Protocol: port.Protocol, Port: port.Port}
		if numbers[number] {
			errs = append(errs, field.Duplicate(here, number))
		}
		numbers[number] = true
	}
	return errs
}
