// Package clientgo implements client-go's shared informers. One line replaces client-go's:
//
//	cache.Options{NewInformer: clientgo.NewSharedIndexInformer}                      // controller-runtime
//	factory.InformerFor(&corev1.Pod{}, clientgo.For(podsOf))                         // client-go's factories
//	clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, resync, indexers)             // cache.NewSharedIndexInformer
//	clientgo.NewDynamicSharedInformerFactory(dynamicClient, resync)                  // dynamicinformer's
//
// A [Group] makes informers with common options, and reports their health and metrics.
// Informers of a group with [Direct] read the server over source/kube; the others read their
// ListerWatchers, and client-go decodes. Package informer describes how informers work.
//
// # Guarantees
//
// The informers guarantee what client-go documents for SharedInformer: the cache is updated
// before the callbacks; a handler is called from one goroutine, one callback after the other, in the
// order of each object's states; the initial list is delivered before any later change, and its
// additions are marked; the handle's HasSynced is true once the handler itself has received
// that list; after IsStopped an informer neither starts again nor accepts handlers.
//
// # Differences from client-go
//
//   - A new watch resumes after server errors, broken connections, and undecodable events.
//     client-go v0.37 resumes after a refused connection, status 429, and the end, reset or
//     timeout of a watch that lasted 1 s or had events; it lists after the others. An informer lists after 10 server errors, 5 watches that end
//     at once, or 3 undecodable events, each without progress in between. Each list has a
//     reason, see [health.Status], and delivers only what changed.
//   - An object that was deleted and created again under its name is delivered as deleted and
//     added, never as updated. If only a list showed it, the deletion carries a
//     cache.DeletedFinalStateUnknown, which always has the last known object; so does a
//     deletion that a slow handler receives when the store no longer has the final state.
//   - A handler's panic is reported and counted; the handler continues with the next change.
//     [CrashOnPanic] restores client-go's behaviour.
//   - A transform is called once for each state of an object, and may change it in place. If it
//     fails or panics, the object is skipped in all its states, and the status has the reason;
//     in client-go an error keeps the old state or blocks the sync, and a panic ends the
//     process.
//   - If an index function fails or panics for an object, the object is missing from the index,
//     and this is reported; client-go ends the process.
//   - GetStore and GetIndexer show one consistent snapshot for each call. They can be written,
//     as unit tests do, until the first list is in the cache. Later writes are refused and
//     reported.
//   - Once a handler's removal has returned, no further callback begins. As in client-go the
//     removal does not wait for a callback that has begun, even if that has not executed its
//     first statement; cache.ShutDownEventHandler waits, and client-go delivers what it has
//     queued.
//
// # Versions
//
// The package works with client-go v0.36 and newer, whose version it leaves to the program. With client-go v0.33 to
// v0.35, whose interfaces have fewer methods, build with -tags k8s_v0.35; with v0.38, whose interfaces have more, with
// -tags k8s_v0.38.
//
// # Servers and fakes
//
// The resource versions of a Kubernetes API are one order, and an event that contradicts it
// causes a list. client-go's fakes and some aggregated APIs do not have this order; their events
// are accepted in the order of arrival, also with [Direct].
//
// # Files
//
//	shared.go, indexer.go       SharedIndexInformer and Indexer
//	group.go, options.go        informers with common options
//	dynamic.go, factory.go      informers for client-go's factories
//	checker.go                  what client-go's interfaces have from v0.36 on
//	shards.go, noshards.go      what they have from v0.38 on, and before
//	direct.go                   the request of a ListerWatcher, to read the server directly
//	capture.go                  captures that request, and compares its identity
//	source.go                   a ListerWatcher or the server as a source
package clientgo
