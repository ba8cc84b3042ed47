package builtin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateService checks a Service's type, ports, selector and external name. It checks no addresses, since none are
// allocated, and no fields that kube-apiserver clears when the type changes.
func validateService(s *corev1.Service) (errs field.ErrorList) {
	at := field.NewPath("spec")
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	external := s.Spec.Type == corev1.ServiceTypeExternalName
	if len(s.Spec.Ports) == 0 && !headless && !external {
		errs = append(errs, field.Required(at.Child("ports"), ""))
	}
	if external {
		errs = append(errs, validateExternalName(at.Child("externalName"), s.Spec.ExternalName)...)
	}
	errs = append(errs, validateServicePorts(at.Child("ports"), s.Spec.Ports)...)
	errs = append(errs, metavalidation.ValidateLabels(s.Spec.Selector, at.Child("selector"))...)
	errs = append(errs, oneOf(at.Child("sessionAffinity"), s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)...)
	errs = append(errs, oneOf(at.Child("type"), s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	if policy := s.Spec.InternalTrafficPolicy; policy != nil {
		errs = append(errs, oneOf(at.Child("internalTrafficPolicy"), *policy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
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
		errs = append(errs, oneOf(here.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		errs = append(errs, portNumberOrName(here.Child("targetPort"), port.TargetPort)...)
		if port.AppProtocol != nil {
			errs = append(errs, invalids(here.Child("appProtocol"), *port.AppProtocol, validation.IsQualifiedName(*port.AppProtocol))...)
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
