package builtin

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// validateIngress checks the backends, hosts and paths of an Ingress.
func validateIngress(g *networkingv1.Ingress) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &g.Spec
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(at, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(at.Child("defaultBackend"), spec.DefaultBackend)...)
	}
	for i, rule := range spec.Rules {
		errs = append(errs, validateIngressRule(at.Child("rules").Index(i), &rule)...)
	}
	for i, tls := range spec.TLS {
		here := at.Child("tls").Index(i)
		for n, host := range tls.Hosts {
			errs = append(errs, validateHost(here.Child("hosts").Index(n), host)...)
		}
		if tls.SecretName != "" {
			errs = append(errs, invalids(here.Child("secretName"), tls.SecretName,
				apivalidation.NameIsDNSSubdomain(tls.SecretName, false))...)
		}
	}
	if class := spec.IngressClassName; class != nil {
		errs = append(errs, invalids(at.Child("ingressClassName"), *class, apivalidation.NameIsDNSSubdomain(*class,
			false))...)
	}
	return errs
}

func validateIngressRule(at *field.Path, rule *networkingv1.IngressRule) (errs field.ErrorList) {
	if rule.Host != "" {
		if netutils.ParseIPSloppy(rule.Host) != nil {
			errs = append(errs, field.Invalid(at.Child("host"), rule.Host, "must be a DNS name, not an IP address"))
		}
		errs = append(errs, validateHost(at.Child("host"), rule.Host)...)
	}
	if rule.HTTP == nil {
		return errs
	}
	paths := at.Child("http", "paths")
	if len(rule.HTTP.Paths) == 0 {
		errs = append(errs, field.Required(paths, ""))
	}
	for i, path := range rule.HTTP.Paths {
		errs = append(errs, validateIngressPath(paths.Index(i), &path)...)
	}
	return errs
}

// validateHost checks a name, whose first part may be *.
func validateHost(at *field.Path, host string) field.ErrorList {
	if strings.Contains(host, "*") {
		return invalids(at, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	return invalids(at, host, validation.IsDNS1123Subdomain(host))
}

func validateIngressPath(at *field.Path, path *networkingv1.HTTPIngressPath) (errs field.ErrorList) {
	if path.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	switch *path.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		errs = append(errs, validatePath(at.Child("path"), path.Path)...)
	case networkingv1.PathTypeImplementationSpecific:
		if path.Path != "" && !strings.HasPrefix(path.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("path"), path.Path, "must be an absolute path"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("pathType"), *path.PathType,
			[]networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific,
				networkingv1.PathTypePrefix}))
	}
	return append(errs, validateBackend(at.Child("backend"), &path.Backend)...)
}

// validatePath checks that all proxies understand a path in the same way.
func validatePath(at *field.Path, path string) (errs field.ErrorList) {
	if !strings.HasPrefix(path, "/") {
		errs = append(errs, field.Invalid(at, path, "must be an absolute path"))
	}
	for _, sequence := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, sequence) {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("must not contain '%s'", sequence)))
		}
	}
	for _, suffix := range []string{"/..", "/."} {
		if strings.HasSuffix(path, suffix) {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("cannot end with '%s'", suffix)))
		}
	}
	return errs
}

func validateBackend(at *field.Path, b *networkingv1.IngressBackend) (errs field.ErrorList) {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateReference(at.Child("resource"), b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name)
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	name := at.Child("service", "name")
	if b.Service.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		errs = append(errs, invalids(name, b.Service.Name, apivalidation.NameIsDNSLabel(b.Service.Name, false))...)
	}
	port, here := b.Service.Port, at.Child("service", "port")
	switch {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, invalids(here.Child("name"), port.Name, validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, invalids(here.Child("number"), port.Number, validation.IsValidPortNum(int(port.Number)))...)
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

// validateReference checks the group, kind and name of another object.
func validateReference(at *field.Path, group *string, kind, name string) (errs field.ErrorList) {
	if group != nil {
		errs = append(errs, invalids(at.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	}
	return append(append(errs, requiredSegment(at.Child("kind"), kind)...), requiredSegment(at.Child("name"), name)...)
}

// requiredSegment returns an error for a value that is empty or no part of a path.
func requiredSegment(at *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return invalids(at, value, content.IsPathSegmentName(value))
}

// validateNetworkPolicy checks the selectors, peers and ports of a NetworkPolicy.
func validateNetworkPolicy(p *networkingv1.NetworkPolicy) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &p.Spec
	errs = append(errs, validateSelector(at.Child("podSelector"), &spec.PodSelector)...)
	for i, rule := range spec.Ingress {
		here := at.Child("ingress").Index(i)
		errs = append(errs, validatePolicyRule(here, rule.Ports, here.Child("from"), rule.From)...)
	}
	for i, rule := range spec.Egress {
		here := at.Child("egress").Index(i)
		errs = append(errs, validatePolicyRule(here, rule.Ports, here.Child("to"), rule.To)...)
	}
	if len(spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(at.Child("policyTypes"), &spec.PolicyTypes,
			"may not specify more than two policyTypes"))
	}
	for i, kind := range spec.PolicyTypes {
		if kind != networkingv1.PolicyTypeIngress && kind != networkingv1.PolicyTypeEgress { // not in alphabetical order
			errs = append(errs, field.NotSupported(at.Child("policyTypes").Index(i), kind,
				[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}))
		}
	}
	return errs
}

func validateSelector(at *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

func validatePolicyRule(at *field.Path, ports []networkingv1.NetworkPolicyPort, peersAt *field.Path,
	peers []networkingv1.NetworkPolicyPeer) (errs field.ErrorList) {
	for i, port := range ports {
		errs = append(errs, validatePolicyPort(at.Child("ports").Index(i), &port)...)
	}
	for i, peer := range peers {
		errs = append(errs, validatePolicyPeer(peersAt.Index(i), &peer)...)
	}
	return errs
}

func validatePolicyPort(at *field.Path, p *networkingv1.NetworkPolicyPort) (errs field.ErrorList) {
	if p.Protocol != nil {
		errs = append(errs, oneOf(at.Child("protocol"), *p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP,
			corev1.ProtocolSCTP)...)
	}
	end := at.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
		return errs
	case p.EndPort == nil:
	case p.Port.Type == intstr.String:
		errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
	default:
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		errs = append(errs, invalids(end, *p.EndPort, validation.IsValidPortNum(int(*p.EndPort)))...)
	}
	return append(errs, portNumberOrName(at.Child("port"), *p.Port)...)
}

func validatePolicyPeer(at *field.Path, p *networkingv1.NetworkPolicyPeer) (errs field.ErrorList) {
	if p.PodSelector != nil {
		errs = append(errs, validateSelector(at.Child("podSelector"), p.PodSelector)...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, validateSelector(at.Child("namespaceSelector"), p.NamespaceSelector)...)
	}
	selected := p.PodSelector != nil || p.NamespaceSelector != nil
	if p.IPBlock != nil {
		errs = append(errs, validateBlock(at.Child("ipBlock"), p.IPBlock)...)
		if selected {
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		}
	} else if !selected {
		errs = append(errs, field.Required(at, "must specify a peer"))
	}
	return errs
}

func validateBlock(at *field.Path, b *networkingv1.IPBlock) (errs field.ErrorList) {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(at.Child("cidr"), "")}
	}
	errs = append(errs, validation.IsValidCIDRForLegacyField(at.Child("cidr"), b.CIDR, false, nil)...)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	for i, text := range b.Except {
		here := at.Child("except").Index(i)
		errs = append(errs, validation.IsValidCIDRForLegacyField(here, text, false, nil)...)
		_, part, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		wholeBits, _ := whole.Mask.Size()
		partBits, _ := part.Mask.Size()
		if !whole.Contains(part.IP) || wholeBits >= partBits {
			errs = append(errs, field.Invalid(here, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}
