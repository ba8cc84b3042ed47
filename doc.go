// Package keepwatch defines the types of list and watch: keys, revisions, objects, changes,
// sources, targets and failures, and the promises of every package that uses them.
//
// Programs use the packages that are built on them:
//
//	informer, informer/clientgo   cache the objects of a resource and handle its changes
//	operator, operator/manager    call handlers until they succeed; a program of them
//	stream                        writes changes to a file or pipe, with its cursor on disk
//	stream/transfer, stream/sink  store several resources in a database
//	sinks/...                     the databases, brokers, files and HTTP servers that store them
//	server/controlplane           runs a Kubernetes API server in the process; server/testserver: in a test
//	server/proxy                  answers reads in front of a Kubernetes API server
//	check                         judges what a watch client received
//
// and they stand on these:
//
//	source/kube         reads a Kubernetes API             (implements Source)
//	server/source/etcd  reads etcd itself                  (implements Source)
//	reflector           keeps a target equal to a source   (decides about failures)
//	store               has one resource's state and recent history
//	server/watchcache, server/readpath, server/storage   serve a resource's GET, LIST and WATCH from memory
//
// # The promises
//
// Let H be the source's committed history, S(r) the state at revision r, and σ
// a consumer's filter. A consumer receives batches (r0, r1], gaps (r0, r1] and
// bookmarks r, across every reconnect and, if its cursor is stored, every
// restart.
//
//	P1  contiguity      every batch or gap starts at the consumer's cursor; a cursor never goes back, except by
//	                    a gap with the reason rewind
//	P2  completeness    a batch (r0, r1] is σ(H) on (r0, r1]: same events, order and content, once each
//	P3  gap             a gap (r0, r1] is the difference of σS(r0) and σS(r1); it is declared. A stream has one
//	                    only if the history is gone or could not be read; a watcher or a handler also if it
//	                    lags by more than the window
//	P4  fold            folding everything received up to r gives exactly σS(r)
//	P5  monotonic       one object's revision only rises while its UID stays
//	P6  deletes         whatever leaves the view yields Deleted with its last known state, in a gap too;
//	                    a new UID under an old name is Deleted then Added, never Modified
//	P7  no resurrection after Deleted at r nothing shows that object at a revision ≤ r
//	P8  atomic          the changes of one revision are never split over two batches
//	P9  bookmarks       bookmark r: all of σ up to r was delivered and nothing ≤ r follows
//	P10 filter edges    leaving the filter is Deleted, entering it is Added
//	P11 convergence     once faults and writes stop, every live consumer reaches the last revision within
//	                    idle timeout + backoff cap + relist time
//	P12 bounds          every buffer has a bound; a slow consumer costs the others nothing
//	P13 clean end       every stream ends with one typed reason; no goroutine outlives its owner
//
// Delivery to a handler or a sink is at least once across a crash; [Change.ID]
// is the same each time a change is delivered.
package keepwatch
