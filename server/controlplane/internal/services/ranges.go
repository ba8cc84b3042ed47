package services

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// defaultClusterIPs has addresses for 65,000 Services. Its first address is that of kube-apiserver's default, which has
// 254.
const defaultClusterIPs = "10.0.0.0/16"

// defaultNodePorts are those of kube-apiserver.
const defaultNodePorts = "30000-32767"

// smallestRange is the number of addresses that kube-apiserver needs at least.
const smallestRange = 8

// Ranges are the addresses that Services get. They are immutable.
type Ranges struct {
	// prefixes has one of IPv4, one of IPv6, or both; the first is the default.
	prefixes  []netip.Prefix
	nodePorts utilnet.PortRange
}

// ParseRanges parses the ranges as kube-apiserver's flags --service-cluster-ip-range and --service-node-port-range.
// Empty ones are the defaults.
func ParseRanges(clusterIPs, nodePorts string) (r Ranges, err error) {
	clusterIPs, nodePorts = cmp.Or(clusterIPs, defaultClusterIPs), cmp.Or(nodePorts, defaultNodePorts)
	ports, err := utilnet.ParsePortRange(nodePorts)
	if err != nil || ports.Base == 0 {
		return r, fmt.Errorf("the range %q of node ports is invalid: give a first and a last port, like %s", nodePorts,
			defaultNodePorts)
	}
	r.nodePorts = *ports
	for part := range strings.SplitSeq(clusterIPs, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil || prefix.Addr().Is4In6() {
			return r, fmt.Errorf(
				"the range %q of cluster IPs is invalid: give a prefix, like %s, or two with a comma between them", clusterIPs,
				defaultClusterIPs)
		}
		r.prefixes = append(r.prefixes, prefix.Masked())
	}
	if len(r.prefixes) > 2 || len(r.prefixes) == 2 && r.prefixes[0].Addr().Is4() == r.prefixes[1].Addr().Is4() {
		return r, fmt.Errorf("the range %q of cluster IPs is invalid: give one prefix of IPv4, one of IPv6, or both",
			clusterIPs)
	}
	for _, prefix := range r.prefixes {
		if hostBits(prefix) > 64 || sizeOf(prefix) < smallestRange {
			return r, fmt.Errorf(
				"the range %s of cluster IPs has the wrong size: give a prefix with at least %d addresses, and of at least 64 bits for IPv6", prefix, smallestRange)
		}
	}
	return r, nil
}

// First returns the first address of the default family. It is that of the API server's own Service.
func (r Ranges) First() netip.Addr { return addressAt(r.prefixes[0], 0) }

// Contains reports whether an IP is one that this server gives, or may have given.
func (r Ranges) Contains(ip string) bool {
	address, err := netip.ParseAddr(ip)
	_, ok := r.around(address)
	return err == nil && ok
}

// around returns the range that has an address.
func (r Ranges) around(address netip.Addr) (netip.Prefix, bool) {
	for _, prefix := range r.prefixes {
		if prefix.Contains(address) {
			return prefix, true
		}
	}
	return netip.Prefix{}, false
}

// of returns the range of a family.
func (r Ranges) of(family corev1.IPFamily) (netip.Prefix, bool) {
	for _, prefix := range r.prefixes {
		if familyOf(prefix.Addr()) == family {
			return prefix, true
		}
	}
	return netip.Prefix{}, false
}

func familyOf(address netip.Addr) corev1.IPFamily {
	if address.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func hostBits(prefix netip.Prefix) int { return prefix.Addr().BitLen() - prefix.Bits() }

// sizeOf returns the number of addresses that a prefix has, at most 2^63.
func sizeOf(prefix netip.Prefix) uint64 { return 1 << min(hostBits(prefix), 63) }

// usable returns the number of addresses that Services can have: not the first, which is the network's, and for IPv4
// not the last, which is for broadcasts.
func usable(prefix netip.Prefix) uint64 {
	if prefix.Addr().Is4() {
		return sizeOf(prefix) - 2
	}
	return sizeOf(prefix) - 1
}

// addressAt returns the usable address with this index.
func addressAt(prefix netip.Prefix, index uint64) netip.Addr {
	bytes := prefix.Addr().As16() // an IPv4 address is at its end
	low := bytes[8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)+index+1)
	address := netip.AddrFrom16(bytes)
	if prefix.Addr().Is4() {
		return address.Unmap()
	}
	return address
}

// isUsable reports whether a Service can have an address of a prefix.
func isUsable(prefix netip.Prefix, address netip.Addr) bool {
	return address != prefix.Addr() && (address.Is6() || address != addressAt(prefix, usable(prefix)))
}

// reservedOf returns the number of addresses or ports at the beginning of a range that are given only when no others
// are left, so that those which users write into Services are free: KEP-3070 and KEP-3668.
func reservedOf(size, part, most uint64) uint64 {
	const least = 16
	if size <= least {
		return 0
	}
	return min(max(size/part, least), most)
}
