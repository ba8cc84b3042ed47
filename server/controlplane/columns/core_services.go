package columns

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var serviceView = show(
	func(service *corev1.Service) []any {
		spec := service.Spec
		clusterIP := spec.ClusterIP
		if len(spec.ClusterIPs) > 0 {
			clusterIP = spec.ClusterIPs[0]
		}
		return []any{
			service.Name, string(spec.Type), orElse(clusterIP, none), externalIPs(service),
			orElse(joined(spec.Ports, servicePort), none), age(service), labelsOf(spec.Selector),
		}
	},
	nameColumn,
	text("Type", described(corev1.ServiceSpec{}, "type")),
	text("Cluster-IP", described(corev1.ServiceSpec{}, "clusterIP")),
	text("External-IP", described(corev1.ServiceSpec{}, "externalIPs")),
	text("Port(s)", described(corev1.ServiceSpec{}, "ports")),
	ageColumn,
	wide(text("Selector", described(corev1.ServiceSpec{}, "selector"))),
)

// externalIPs returns the addresses of the service outside of the cluster.
func externalIPs(service *corev1.Service) string {
	fixed := strings.Join(service.Spec.ExternalIPs, ",")
	switch service.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return orElse(fixed, none)
	case corev1.ServiceTypeLoadBalancer:
		points := joinPoints(service.Status.LoadBalancer.Ingress, func(point corev1.LoadBalancerIngress) string {
			return orElse(point.IP, point.Hostname)
		})
		return orElse(strings.Join(slices.DeleteFunc([]string{points, fixed}, isEmpty), ","), "<pending>")
	case corev1.ServiceTypeExternalName:
		return service.Spec.ExternalName
	default:
		return unknown
	}
}

func isEmpty(s string) bool { return s == "" }

// joinPoints returns a load balancer's ingress points, each address once, sorted.
func joinPoints[T any](points []T, address func(T) string) string {
	var addresses []string
	for _, point := range points {
		if a := address(point); a != "" {
			addresses = append(addresses, a)
		}
	}
	slices.Sort(addresses)
	return strings.Join(slices.Compact(addresses), ",")
}

// servicePort returns PORT/PROTOCOL, or PORT:NODEPORT/PROTOCOL.
func servicePort(port corev1.ServicePort) string {
	if port.NodePort > 0 {
		return fmt.Sprintf("%d:%d/%s", port.Port, port.NodePort, port.Protocol)
	}
	return fmt.Sprintf("%d/%s", port.Port, port.Protocol)
}
