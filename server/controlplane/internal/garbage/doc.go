// Package garbage collects the dependents of deleted owners, as kube-controller-manager's garbage collector does
// (https://kubernetes.io/docs/concepts/architecture/garbage-collection/).
//
// A [Collector] follows the metadata of all objects in a graph of owners and dependents. It deletes an object all of
// whose owners are gone, removes references to owners that are gone from others, and completes deletions with
// propagation:
//
//	Background  the owner is deleted at once, the dependents after it
//	Foreground  the owner is deleted when no dependent with blockOwnerDeletion is left
//	Orphan      the owner is deleted when no dependent refers to it
//
// For the last two it waits until it knows every dependent that was created before the deletion, of whatever resource.
// Other objects are handled meanwhile.
//
// It reads the objects in the server's memory, and writes through the API.
// It begins when all objects were listed once, since any of them may be a dependent, or after 30 s.
//
//	collector.go  Collector: keeps the graph, and handles one object at a time
//	aside.go      the owners that wait until their dependents are known
//	sources.go    where the objects of each resource are read
//	graph.go      the objects that are known, by owner
//	owners.go     which owners of an object exist
//	writes.go     the deletions and patches
package garbage
