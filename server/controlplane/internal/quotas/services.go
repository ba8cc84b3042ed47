package quotas

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var (
	serviceResource = corev1.Resource("services")
	serviceCount    = generic.ObjectCountQuotaResourceNameFor(serviceResource)
	serviceNames    = []corev1.ResourceName{serviceCount, corev1.ResourceServices, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers}
)

func newServices(list lister) *evaluator {
	return &evaluator{
		resource: serviceResource, list: list(serviceResource),
		matching: func(names []corev1.ResourceName) []corev1.ResourceName {
			return quota.Intersection(names, serviceNames)
		},
		handles: func(a admission.Attributes) bool { // an update may change the type
			return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
		},
		inScope: generic.MatchesNoScopeFunc, usage: serviceUsage, changes: serviceChanges,
	}
}

func serviceUsage(item runtime.Object) (corev1.ResourceList, error) {
	service, ok := item.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("%T is not a service", item)
	}
	balancers := 0
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		balancers = 1
	}
	return corev1.ResourceList{
		serviceCount: count(1), corev1.ResourceServices: count(1),
		corev1.ResourceServicesLoadBalancers: count(balancers),
		corev1.ResourceServicesNodePorts:     count(nodePorts(&service.Spec)),
	}, nil
}

// nodePorts returns how many ports a service uses on nodes: those that will be allocated count, too.
func nodePorts(spec *corev1.ServiceSpec) int {
	allocated := spec.AllocateLoadBalancerNodePorts == nil || *spec.AllocateLoadBalancerNodePorts
	switch {
	case spec.Type == corev1.ServiceTypeNodePort, spec.Type == corev1.ServiceTypeLoadBalancer && allocated:
		return len(spec.Ports)
	case spec.Type == corev1.ServiceTypeLoadBalancer:
		given := 0
		for _, port := range spec.Ports {
			if port.NodePort != 0 {
				given++
			}
		}
		return given
	}
	return 0
}

func serviceChanges(before, after runtime.Object) bool {
	old, service := &before.(*corev1.Service).Spec, &after.(*corev1.Service).Spec
	return old.Type != service.Type || nodePorts(old) != nodePorts(service)
}
