package access

import (
	"net/http"
	"net/netip"
)

// clientNetwork is how many bits of an IPv6 address count: a client has a network of such addresses.
const clientNetwork = 64

// clientAddress returns the address of a request's client, or its network. Headers that name another one do not count:
// clients can make them up.
func clientAddress(q *http.Request) string {
	from, err := netip.ParseAddrPort(q.RemoteAddr)
	if err != nil {
		return ""
	}
	address := from.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(clientNetwork) // it fails for IPv4 alone
	return network.String()
}
