package columns

import (
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var discoveryViews = map[schema.GroupResource]view{
	discoveryv1.Resource("endpointslices"): show(
		func(slice *discoveryv1.EndpointSlice) []any {
			return []any{slice.Name, string(slice.AddressType), slicePorts(slice.Ports), sliceAddresses(slice.Endpoints),
				age(slice)}
		},
		nameColumn,
		text("AddressType", described(discoveryv1.EndpointSlice{}, "addressType")),
		text("Ports", described(discoveryv1.EndpointSlice{}, "ports")),
		text("Endpoints", described(discoveryv1.EndpointSlice{}, "endpoints")),
		ageColumn,
	),
}

// slicePorts lists the first ports. One without a number stands for every port: its name, or *.
func slicePorts(ports []discoveryv1.EndpointPort) string {
	var shown []string
	for _, port := range ports {
		if port.Port != nil {
			shown = append(shown, strconv.Itoa(int(*port.Port)))
		} else {
			shown = append(shown, deref(port.Name, "*"))
		}
	}
	return orElse(firstFew(shown, 3, ","), unset)
}

// sliceAddresses lists the first addresses, of one endpoint after the other.
func sliceAddresses(endpoints []discoveryv1.Endpoint) string {
	var addresses []string
	for _, endpoint := range endpoints {
		addresses = append(addresses, endpoint.Addresses...)
	}
	return orElse(firstFew(addresses, 3, ","), unset)
}
