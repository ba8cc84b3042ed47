// Package builtin serves the resources that every Kubernetes cluster has (pods, deployments, leases
// and so on) from a table.
//
// The table has one row a resource. Every row becomes a [genericregistry.Store] of k8s.io/apiserver
// with one shared strategy, and the status and scale subresources the real server has. The Go types
// are those of k8s.io/api: the type of the stored version is also the one the server works on, so
// that nothing is converted but the two resources with a second version (Events and
// HorizontalPodAutoscalers).
//
// Beside the table are the reviews, questions about users and their rights that aren't stored.
//
// What differs from kube-apiserver: a spec's structure is checked, its meaning isn't (no validation
// beyond names, metadata and, in updates, the fields in immutable.go); only the defaults in defaults.go are set; nothing is allocated
// (cluster IPs, node ports); pods are deleted at once, since no kubelet would confirm it.
//
// [genericregistry.Store]: https://pkg.go.dev/k8s.io/apiserver/pkg/registry/generic/registry#Store
package builtin
