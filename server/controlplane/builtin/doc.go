// Package builtin serves the resources that every Kubernetes cluster has (pods, deployments, leases
// and so on) from a table.
//
// The table has one row for each resource. A row becomes a [genericregistry.Store] of k8s.io/apiserver
// with a shared strategy, and with the status and scale subresources of kube-apiserver. The Go types
// are those of k8s.io/api. The type of the stored version is also the internal type, so that nothing
// is converted except the two resources with a second version (Events and HorizontalPodAutoscalers).
// Reviews, which answer questions about users and their rights, are not in the table: they are not
// stored.
//
// Differences from kube-apiserver: only the structure of most specs is checked, and not their values (no
// validation except of names, metadata, what validate*.go checks and, in updates, the fields in immutable.go); only the
// defaults in defaults*.go are set. Services get cluster IPs and node ports from package internal/services; nothing
// answers there.
//
//	kinds.go        the table                        kind.go         a row, and its rules
//	describe.go     what discovery says of a row
//	scheme.go       Go types, codecs, conversions    storage.go      REST storages of the kinds
//	routes.go       discovery, and routes by group
//	strategy.go     rules of creates and updates     prepare.go      fields of new objects
//	immutable.go    fields that updates must keep    fields.go       selectable fields
//	validate.go     values that are refused          validate_*.go   the rules by kind
//	status.go       the subresource status           scale.go        the subresource scale
//	namespace.go    deletion in two steps            poddeletion.go  deletion of pods in two steps
//	reviews.go      reviews, which store nothing     accessreviews.go  reviews of rights
//	tokens.go       serviceaccounts/token            tokenreviews.go reviews of tokens
//	certificates.go CertificateSigningRequests       apiservices.go  APIServices
//	storagemigrations.go  StorageVersionMigrations
//	eviction.go     the subresource pods/eviction    binding.go      pods/binding, and bindings
//	connect.go      pods/log, exec, attach, portforward: errors
//	defaults*.go    defaults                         events.go, autoscalers.go   second versions
//
// [genericregistry.Store]: https://pkg.go.dev/k8s.io/apiserver/pkg/registry/generic/registry#Store
package builtin
