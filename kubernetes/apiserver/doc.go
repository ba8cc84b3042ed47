// Package apiserver runs Kubernetes' own API server with Keepwatch's storage and read path.
//
//	request ─▶ authentication, authorization, admission, audit, priority and fairness: kube-apiserver's
//	             └─▶ readpath ─▶ watchcache ◀── source/etcd ◀── etcd
//	                   └─▶ kube-apiserver's handlers ─▶ storage ─▶ watchcache; writes by etcd3 ─▶ etcd
//
// The command has all flags of kube-apiserver and a few more. What it stores in etcd is what
// kube-apiserver stores, so that either can take the other's place.
//
// # What is built
//
// Built-in resources are read by storage and answered by readpath, in every served version, as JSON,
// protobuf, metadata and Tables. A watch cache stores the protobuf that is served in the version of etcd,
// as far as a kind's registry sets nothing on each read. Custom resources are
// read and answered so, too (package server/customreaders), except those whose schema allows a field
// items at the top. A request for an API version that an APIService sends to another server passes.
//
// The server has no folder of its own, and writes nothing into etcd that kube-apiserver does not write.
// So it does not know after a start in which encodings clients requested large lists before, which
// keepwatch serve reads from its data folder: the first list of each encoding encodes all objects.
//
// # Files
//
//	command.go         the command: kube-apiserver's flags and ours
//	options.go         our flags
//	run.go             runs the servers
//	server.go          creates the servers
//	priorities.go      the order of built-in API versions in discovery
//	wrapped.go         servers that read by Keepwatch
//	storages.go        opens a storage for each resource
//	served.go          the resources and groups that a server has routes for
//	resource.go        describes a built-in resource to the read path
//	types.go           the types of each server's kinds
//	memory.go          what the server need not hold: managed fields of its own pods, garbage of the start
//	authorizer.go      the informers that requests of a starting server wait for
//	readers.go         the readers of all resources, in the chain of handlers
//	remoteversions.go  the API versions that the aggregator sends to other servers
//	version.go         the version in which watch caches store objects
//	defaults.go        what registries set on each read
//	table.go           rows of Kubernetes' printers, with the times that ages are counted from
//	times.go           the times in an object
package apiserver
