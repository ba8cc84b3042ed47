package columns

//lint:file-ignore SA1019 Endpoints are deprecated for new clients; the kind is still served.

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

var endpointsView = show(
	func(endpoints *corev1.Endpoints) []any {
		ready := none
		if len(endpoints.Subsets) > 0 {
			ready = firstFew(endpointAddresses(endpoints), 3, ",")
		}
		return []any{endpoints.Name, ready, age(endpoints)}
	},
	nameColumn,
	text("Endpoints", described(corev1.Endpoints{}, "subsets")),
	ageColumn,
)

// endpointAddresses lists the ready addresses with each of their ports.
func endpointAddresses(endpoints *corev1.Endpoints) []string {
	var addresses []string
	for _, subset := range endpoints.Subsets {
		if len(subset.Ports) == 0 {
			for _, address := range subset.Addresses {
				addresses = append(addresses, address.IP)
			}
		}
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses {
				addresses = append(addresses, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	return addresses
}
