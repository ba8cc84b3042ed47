package builtin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// The bounds of an EndpointSlice.
const (
	maxEndpoints         = 1000
	maxEndpointPorts     = 20000
	maxEndpointAddresses = 100
	maxHints             = 8 // zones, and nodes
)

// validateEndpointSlice checks the addresses and ports of endpoints.
func validateEndpointSlice(s *discoveryv1.EndpointSlice) (errs field.ErrorList) {
	if at := field.NewPath("addressType"); s.AddressType == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, oneOf(at, s.AddressType, discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4,
			discoveryv1.AddressTypeIPv6)...)
	}
	errs = append(errs, validateEndpointPorts(field.NewPath("ports"), s.Ports)...)
	at := field.NewPath("endpoints")
	if len(s.Endpoints) > maxEndpoints {
		return append(errs, field.TooMany(at, len(s.Endpoints), maxEndpoints))
	}
	for i := range s.Endpoints {
		errs = append(errs, validateEndpoint(at.Index(i), s.AddressType, &s.Endpoints[i])...)
	}
	return errs
}

func validateEndpoint(at *field.Path, kind discoveryv1.AddressType, e *discoveryv1.Endpoint) (errs field.ErrorList) {
	addresses := at.Child("addresses")
	switch n := len(e.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	case n > maxEndpointAddresses:
		errs = append(errs, field.TooMany(addresses, n, maxEndpointAddresses))
	}
	for i, address := range e.Addresses {
		errs = append(errs, validateAddress(addresses, i, kind, address)...)
	}
	if e.NodeName != nil {
		errs = append(errs, invalids(at.Child("nodeName"), *e.NodeName, validation.IsDNS1123Subdomain(*e.NodeName))...)
	}
	if e.Hostname != nil {
		errs = append(errs, invalids(at.Child("hostname"), *e.Hostname, validation.IsDNS1123Label(*e.Hostname))...)
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(at.Child("hints"), e.Hints)...)
	}
	return errs
}

// validateAddress checks the i-th address of an endpoint. kube-apiserver reports a wrong family at the list.
func validateAddress(list *field.Path, i int, kind discoveryv1.AddressType, address string) field.ErrorList {
	at := list.Index(i)
	var errs field.ErrorList
	wrongFamily := false
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		errs, wrongFamily = validation.IsValidIPForLegacyField(at, address, true, nil), !netutils.IsIPv4String(address)
	case discoveryv1.AddressTypeIPv6:
		errs, wrongFamily = validation.IsValidIP(at, address), !netutils.IsIPv6String(address)
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(at, address)
	default:
		return nil
	}
	if len(errs) > 0 {
		return errs
	}
	if wrongFamily {
		errs = append(errs, field.Invalid(list, address, fmt.Sprintf("must be an %s address", kind)))
	}
	return append(errs, validateEndpointIP(at, address)...)
}

// validateEndpointIP refuses unspecified, loopback and link-local addresses.
func validateEndpointIP(at *field.Path, address string) (errs field.ErrorList) {
	ip := netutils.ParseIPSloppy(address)
	for _, refused := range []struct {
		is      bool
		message string
	}{
		{ip.IsUnspecified(), fmt.Sprintf("may not be unspecified (%v)", address)},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		if refused.is {
			errs = append(errs, field.Invalid(at, address, refused.message))
		}
	}
	return errs
}

// validateEndpointPorts checks ports, which have the defaults of names and protocols.
func validateEndpointPorts(at *field.Path, ports []discoveryv1.EndpointPort) (errs field.ErrorList) {
	if len(ports) > maxEndpointPorts {
		return field.ErrorList{field.TooMany(at, len(ports), maxEndpointPorts)}
	}
	seen := map[string]bool{}
	for i, p := range ports {
		here := at.Index(i)
		if *p.Name != "" {
			errs = append(errs, invalids(here.Child("name"), *p.Name, validation.IsDNS1123Label(*p.Name))...)
		}
		if seen[*p.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), p.Name))
		}
		seen[*p.Name] = true
		errs = append(errs, oneOf(here.Child("protocol"), *p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP,
			corev1.ProtocolUDP)...)
		if p.AppProtocol != nil {
			errs = append(errs, invalids(here.Child("appProtocol"), *p.AppProtocol,
				validation.IsQualifiedName(*p.AppProtocol))...)
		}
	}
	return errs
}

func validateHints(at *field.Path, hints *discoveryv1.EndpointHints) (errs field.ErrorList) {
	zones, nodes := at.Child("forZones"), at.Child("forNodes")
	if n := len(hints.ForZones); n > maxHints {
		return field.ErrorList{field.TooMany(zones, n, maxHints)}
	}
	for i, zone := range hints.ForZones {
		repeated := slices.Contains(hints.ForZones[:i], zone)
		errs = append(errs, validateHint(zones.Index(i).Child("name"), zone.Name, repeated, validation.IsValidLabelValue)...)
	}
	if n := len(hints.ForNodes); n > maxHints {
		return append(errs, field.TooMany(nodes, n, maxHints))
	}
	for i, node := range hints.ForNodes {
		repeated := slices.Contains(hints.ForNodes[:i], node)
		errs = append(errs, validateHint(nodes.Index(i).Child("name"), node.Name, repeated, validation.IsDNS1123Subdomain)...)
	}
	return errs
}

func validateHint(at *field.Path, name string, repeated bool, rule func(string) []string) (errs field.ErrorList) {
	if repeated {
		errs = append(errs, field.Duplicate(at, name))
	}
	return append(errs, invalids(at, name, rule(name))...)
}
