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
// protobuf, metadata and Tables. Custom resources are read by storage and answered by the API server's
// handlers. Not built: flags for the history and the budget of encodings, compressed watches,
// readers of custom resources.
//
// # Files
//
//	command.go    the command: kube-apiserver's flags and ours
//	reads.go      our flags
//	run.go        builds the servers and runs them
//	storages.go   opens a storage for each resource
//	served.go     the resources that a server has routes for
//	resource.go   describes a built-in resource to the read path
//	readers.go    the readers of all resources, in the chain of handlers
//	defaults.go   what registries set on each read
//	table.go      rows of Kubernetes' printers, with the times that ages are counted from
//	times.go      the times in an object
package apiserver
