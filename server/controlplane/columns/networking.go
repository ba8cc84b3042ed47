package columns

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var networkingViews = map[schema.GroupResource]view{
	networkingv1.Resource("ingresses"): show(
		func(ingress *networkingv1.Ingress) []any {
			address := joinPoints(ingress.Status.LoadBalancer.Ingress,
				func(point networkingv1.IngressLoadBalancerIngress) string {
					return orElse(point.IP, point.Hostname)
				})
			ports := "80"
			if len(ingress.Spec.TLS) > 0 {
				ports = "80, 443"
			}
			return []any{
				ingress.Name, deref(ingress.Spec.IngressClassName, none), ingressHosts(ingress.Spec.Rules), address, ports,
				age(ingress),
			}
		},
		nameColumn,
		text("Class", described(networkingv1.IngressSpec{}, "ingressClassName")),
		text("Hosts", described(networkingv1.IngressRule{}, "host")),
		text("Address", described(networkingv1.IngressLoadBalancerStatus{}, "ingress")),
		text("Ports", "The ports of HTTP, and of HTTPS if there is TLS."),
		ageColumn,
	),
	networkingv1.Resource("ingressclasses"): show(
		func(class *networkingv1.IngressClass) []any {
			return []any{class.Name, class.Spec.Controller, ingressParameters(class.Spec.Parameters), age(class)}
		},
		nameColumn,
		text("Controller", described(networkingv1.IngressClassSpec{}, "controller")),
		text("Parameters", described(networkingv1.IngressClassSpec{}, "parameters")),
		ageColumn,
	),
	networkingv1.Resource("networkpolicies"): show(
		func(policy *networkingv1.NetworkPolicy) []any {
			return []any{policy.Name, selectorOf(&policy.Spec.PodSelector), age(policy)}
		},
		nameColumn,
		text("Pod-Selector", described(networkingv1.NetworkPolicySpec{}, "podSelector")),
		ageColumn,
	),
}

// ingressHosts lists the hosts of the rules, or * when the rules are for any host.
func ingressHosts(rules []networkingv1.IngressRule) string {
	var hosts []string
	for _, rule := range rules {
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	return orElse(firstFew(hosts, 3, ","), "*")
}

// ingressParameters returns KIND/NAME or KIND.GROUP/NAME.
func ingressParameters(parameters *networkingv1.IngressClassParametersReference) string {
	if parameters == nil {
		return none
	}
	kind := schema.GroupKind{Group: deref(parameters.APIGroup, ""), Kind: parameters.Kind}
	return kind.String() + "/" + parameters.Name
}
