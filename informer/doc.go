// Package informer caches the objects of a Kubernetes resource in a Go process and delivers
// their changes to handlers, typed:
//
//	pods, err := informer.New[*corev1.Pod](cfg, informer.Namespace("web"))
//
// Package [github.com/keepwatch/keepwatch/informer/clientgo] implements client-go's interfaces
// with the same engine. Package [github.com/keepwatch/keepwatch/informer/health] has the status of both,
// and their health check and metrics.
//
// # How it works
//
// A reflector feeds a store, and a handler is a cursor over the store: it has only the last
// state that it delivered. A handler that lags by less than 1,024 changes receives each of
// them. A handler that lags by more receives the difference between that state and the newest
// one: one update for each object that changed, and every deletion. A slow handler delays
// neither the other handlers nor the server. No queue grows; a slow handler keeps one old
// snapshot alive, and the retries of a failing one hold at most 10,000 notifications: behind
// them it waits, as [Informer.Handle] describes.
//
// # Guarantees
//
//   - The cache is updated before a handler is called.
//   - One goroutine calls a handler, one call after the other, in the order of each object's
//     states.
//   - The initial state is delivered before any later change, and its changes are marked.
//   - If the handler returns an error, or panics, the change is delivered again, merged with
//     later changes of the object.
//   - An object that was deleted and created again under its name is delivered as deleted and
//     added, never as modified.
//   - Once a handler's removal has returned, no further call begins.
//   - A panic in a handler, a transform or an index function is reported, and the process
//     continues. [CrashOnPanic] changes this for handlers.
//
// # Decoding
//
// An informer reads the server over source/kube: protobuf for built-in types, JSON for others,
// one object after the other as it arrives. Strings and managed fields that repeat from object
// to object are stored once; managed fields are not shared if a transform is set, since it may
// change them. Typed objects have no apiVersion and kind. An object that cannot be decoded is
// skipped like one whose transform fails; see [health.Status].
//
// # Files
//
//	informer.go, options.go     the informer, its options
//	change.go                   handlers
//	snapshot.go                 reads that share one state
//	audit.go                    a comparison with the server
//	clientgo                    client-go's interfaces
//	health                      status, health check, metrics
//	internal/follow             the engine: source, reflector, store and handlers of one informer
//	internal/direct             a server as a source, over source/kube
//	internal/listwatch          a ListerWatcher as a source
//	internal/item               an object in the store
//	internal/object             decoding of protobuf and JSON, shared strings, compact objects
//	internal/podtest            a server of pods for tests
package informer
