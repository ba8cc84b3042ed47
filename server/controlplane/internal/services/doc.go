// Package services gives Services their cluster IPs and node ports, and completes the fields that depend on them, as
// kube-apiserver's registry of Services does. Nothing answers at a cluster IP or a node port: there is no cluster
// network.
//
//	hooks.go       Addresses: what happens before a Service is created or updated
//	ranges.go      Ranges: the IPs and ports that are given
//	allocator.go   chooses an IP or a port that no Service has
//	index.go       Services by their addresses
//	clusterips.go  cluster IPs, and clusterIP beside clusterIPs
//	families.go    ipFamilyPolicy and ipFamilies
//	nodeports.go   node ports, and the one of health checks
//	validate.go    the form of cluster IPs and families, and what an update may change
//	types.go       what the type of a Service needs, and which fields a change of the type clears
package services
