// Package informer caches Kubernetes objects in a Go process and delivers their changes to
// handlers. It implements client-go's interfaces, so that one line adopts it, and has a
// typed interface of its own.
//
//	cache.Options{NewInformer: informer.NewSharedIndexInformer}                      // controller-runtime
//	factory.InformerFor(&corev1.Pod{}, informer.For(podsOf))                         // client-go's factories
//	informer.NewSharedIndexInformer(lw, &corev1.Pod{}, resync, indexers)             // cache.NewSharedIndexInformer
//	informer.NewDynamicSharedInformerFactory(dynamicClient, resync)                  // dynamicinformer's
//	pods, err := informer.New[*corev1.Pod](cfg, informer.Namespace("web"))           // without client-go's types
//
// # How it works
//
// A reflector feeds a store, and a handler is a cursor over the store: it keeps only the
// last state that was delivered. A handler that has caught up, or is a little behind,
// receives each event. A handler that is far behind receives the difference between that
// state and the newest one: one update for each object that changed, and every deletion.
// Nothing is queued, and a slow handler costs the other handlers, the server and the memory
// nothing.
//
// # What is promised
//
// What client-go documents of SharedInformer: the cache is updated before the
// callbacks; a handler is called from one goroutine, one callback after the other,
// in the order of each object's states; the initial list comes before anything
// newer, and its additions are marked; the handle's HasSynced is true only when the
// handler itself has received that list; after IsStopped an informer neither
// starts again nor takes handlers.
//
// # What is different from client-go
//
//   - A new watch recovers from what client-go lists for: server errors, broken connections,
//     frames that can't be read, watches that end at once. A list has a reason, see
//     [Status], and delivers only what changed.
//   - An object that was deleted and created again under its name is delivered as
//     deleted and added, never as updated. If only a list showed it, the deletion
//     carries a cache.DeletedFinalStateUnknown, which always has the last known
//     object; so does a deletion that a slow handler receives so late that the store no
//     longer has the final state.
//   - A handler's panic is reported and counted; the handler goes on with the next
//     change, and the process lives. [CrashOnPanic] restores client-go's behaviour.
//   - A transform is called once for each state of an object, and may change it in place.
//     Where it fails or panics the object is skipped, in all its states, and [Status]
//     says so; in client-go an error keeps the old state or blocks the sync, and a panic
//     ends the process.
//   - An index function that fails or panics leaves an object out of its index, and
//     is reported; client-go ends the process.
//   - GetStore and GetIndexer show one consistent snapshot per call. They can be
//     written, as unit tests do, until the first list is in; then the cache belongs to
//     the server, and writes are refused and reported.
//   - Once a handler's removal has returned, no further callback begins. As in client-go
//     the removal does not wait for a callback that has begun, even if that has not come
//     further than its first statement; cache.ShutDownEventHandler waits, and client-go
//     goes on with what it has queued.
//
// # Who decodes
//
// Informers of [New], and those of a group with [Direct], read the server over
// source/kube: protobuf for built-in types, JSON for others, one object after the
// other as it arrives. Strings and managed fields that repeat from object to object are
// stored once; managed fields are not shared if a transform is set, since it may change
// them. Typed objects have no apiVersion and kind then. An object that cannot be decoded is
// skipped like one whose transform fails. Without Direct, client-go decodes.
//
// # Health and metrics
//
// A [Group] is a health check and a Prometheus collector of its informers that run:
//
//	keepwatch_watch_state                                      1 for the state it is in
//	keepwatch_watch_state_since_timestamp_seconds              since when
//	keepwatch_watch_last_event_timestamp_seconds               the last change
//	keepwatch_watch_last_confirmed_timestamp_seconds               the last confirmation that the cache is current
//	keepwatch_watch_relists_total, …_reconnects_total          by reason
//	keepwatch_watch_dropped_events_total                       duplicates
//	keepwatch_watch_objects, …_rejected_objects                in the cache, and skipped
//	keepwatch_watch_handlers, …_handlers_behind                all, and those with changes to receive
//	keepwatch_watch_handler_panics_total
//	informer_queued_items                                      changes left for the handler furthest behind
//	informer_processing_latency_seconds                        how long each call of a handler took
//	informer_store_resource_version                            its 15 least significant digits
//
// The first have a label informer; the last three are client-go's, with its labels
// name, group, version and resource, its buckets and its help, so that both can be
// gathered together. group, version and resource are empty where only a
// ListerWatcher knows them. In client-go a call of a handler is not part of the
// latency, and what waits for a handler is not counted as queued.
//
// # Servers and fakes
//
// Of a Kubernetes API the resource versions are taken for what they are, an order,
// and whatever contradicts it leads to a list. client-go's fakes and the like give
// no such order; what they deliver is taken in the order in which it comes.
//
// # Files
//
//	informer.go, change.go      the typed informer and its handlers
//	snapshot.go, values.go      its reads, which share one state
//	shared.go, indexer.go       client-go's SharedIndexInformer and Indexer
//	dynamic.go, factory.go      informers for client-go's factories
//	settings.go, group.go       options; informers with common options, health and metrics
//	follower.go                 source, reflector, store and handlers of one informer
//	applier.go, transform.go    the reflector's target, which transforms each state once
//	handler.go, progress.go     a cursor over the store for one set of callbacks
//	retries.go, panics.go       failed and panicking callbacks
//	lookup.go                   the newest object of a key
//	direct.go, capture.go       reading a server over source/kube, also for a ListerWatcher
//	status.go, audit.go         health, and a comparison with the server
//	latency.go, metrics.go      metrics
//	internal/listwatch          a ListerWatcher as a source
//	internal/item               an object as the store has it
//	internal/object             decoding of protobuf and JSON, shared strings, compact objects
package informer
