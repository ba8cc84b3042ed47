// Package proxy answers reads of a Kubernetes API server from watch caches, and forwards all other requests to
// that server.
//
//	request ─▶ Proxy ─┬─ who? TokenReview ─▶ allowed? SubjectAccessReview ─▶ readpath ◀─ watchcache ◀─ source/kube
//	                  └─ everything else, with the caller's own credentials ─────────────────▶ the API server
//	                     or, for callers with a certificate, by impersonation
//
// # Never worse than the server
//
// The proxy answers a read only if the answer is what the server could have returned: the same bytes and the same
// resource versions, so that a client can move between the proxy and the server. These requests are forwarded:
// writes, subresources, aggregated APIs, upgrades (watches over WebSockets too, unless in JSON), Tables that are not
// proven, YAML, all that may be CBOR, impersonation, requests without a bearer token or a certificate, watches from a
// revision that the cache does not reach back to, field selectors of kinds that package internal/verbatim does not
// know, resources that [Config].Cached does not allow, and all reads of a resource until its cache has caught up. Reads
// wait for that until two seconds after the first one, except consistent ones. The server words all refusals.
//
// A watch that was forwarded because the cache had not caught up, or did not reach back, ends when the cache can
// continue it: behind a whole event, at whose revision the client connects again. Only watches with bookmarks end in
// this way.
//
// # Encodings
//
// The proxy follows a resource in JSON and in protobuf separately, each from the first request for it on. Resources
// that [Config].Cached names are followed from the start, in JSON until a request needs another encoding. The proxy
// also follows objects without managedFields separately, for the clients of [Config].DropManagedFields. It stores each
// object as the server's text or message: package internal/verbatim.
//
// A bookmark has the form of the bookmark that ends a streaming list without objects, which the proxy requests at its
// start. A server without streaming lists sends none; then bookmarks have only metadata.
//
// # Tables
//
// A Table of a custom resource has cells that its definition and the object determine. The proxy follows the
// definitions from the first such Table on, and compares the Table of all objects with the server's, byte for byte
// except for ages. After that it answers from memory until the definition or the server's version changes, or a sample
// differs. Then open watches of Tables end, and Tables are forwarded until a comparison finds no difference. The cells
// of built-in kinds are in the server's program: the server answers.
//
// # Shards
//
// The proxy selects by shardSelector (KEP-5866) itself: servers ignore it unless an alpha feature gate is on. A list or
// watch with one waits for the first list of its resource. If that takes longer than ten seconds, the server answers
// the list, whose metadata then need not have shardInfo, and a watch is refused with 503 for the client to repeat. So
// is any other watch of a shard that memory cannot answer, unless the server answers with an error, or the resource may
// not be cached.
//
// # Permission
//
// The server decides about each read. It reviews the caller's token, and then the request with its selectors.
// Requests that need the same decision at the same time share a review. The proxy uses a decision for two minutes.
// When the rules, the subjects or the reference of a role or a binding change, the proxy forgets the decisions about
// its namespace, or all, and asks again about open watches. For five seconds after the change it uses a decision for
// one second only, because each API server follows the roles by itself. If the proxy may not read roles, it uses a
// decision for ten seconds.
//
// While the server does not answer, the proxy uses the last decisions since the last change of a role, for ten minutes.
// Lists of any state and open watches continue, with a Warning header that says how old the state is. Consistent reads,
// and requests that the last decisions do not allow, go to the server and wait: it may answer on another connection. An
// open watch that may no longer be allowed ends after ten seconds without a decision.
//
// If the server answers a review with an error, it has not failed: the proxy then uses no earlier decision, and
// forwards the request. A probe on a timer, which no client causes, detects a server that accepts requests and does
// not answer. Until the server answers the probe, the proxy sends no review.
//
// The proxy asks about the identity of an open watch again about every two minutes. The watch ends when the server no
// longer knows its token, when the token or the certificate expires, and after a little more than an hour. A token that
// the server accepts although it has expired does not end it: the clocks differ. It does not end when the server
// restarts.
//
// Everybody can make up tokens: wrong ones are remembered for ten seconds, and the server reviews few at a time for
// the clients of one address.
//
// # Personal views
//
// With [Config].Personal, a list or watch over all namespaces that the server refuses to a user is answered from
// those in which it allows it: package internal/personal finds them, watchcache.View has them for a watch, and
// readpath.Reader.Within answers. Roles and bindings are then followed with their subjects, and the namespaces with
// their UIDs. Nothing of such an answer is forwarded: the server would refuse it.
//
// # Certificates
//
// A client certificate does not reach the server. With [Config].Impersonate the proxy authenticates it as the server
// does, by the authorities in the ConfigMap kube-system/extension-apiserver-authentication, and so it does the
// headers of front proxies; it decides reads by reviews of that user, and forwards everything else as itself,
// impersonating the user. A request that itself impersonates is forwarded if the server allows the user to do that,
// in the verb impersonate. Users that headers would change are refused. Without Impersonate a client with a
// certificate alone is refused.
//
// # Freshness
//
// A consistent read asks the server for its newest revision, once for all that wait, and is answered when
// the cache has reached it. A quiet resource sends no event: the open watch is then replaced by one
// that ends after three seconds, and kube-apiserver sends it a bookmark a second after its start. The server
// answers consistent reads of small collections.
//
// # Fairness
//
// What memory and the endpoints answer passes the priority and fairness of k8s.io/apiserver, with the server's
// FlowSchemas and PriorityLevelConfigurations, or the default ones where the proxy may not read them: package
// internal/fairness. A request that is forwarded, that waits for its client, or a watch after its initial events
// occupies no seat. Requests that wait for long are answered 429, as by kube-apiserver. The server has the same for
// what is forwarded, with the clients' users.
//
// # Memory
//
// When a large first list is complete, its garbage is returned to the system, and again when its objects have been
// read for selectors.
//
// With [Config].MemoryLimit, a resource is left to the server when the objects in use have more than 70 % of it:
// first the largest that nobody watches or has read for a minute, then the largest. Its watches end, and resume at
// the server.
//
// A forwarded response has 128 KiB of the memory, and the server waits until its client reads. Those of which a
// client reads nothing are cut off: after a minute, unless they are streams, and as soon as one user has more than
// 100 of them.
//
// # Restart
//
// [State] is an index on disk: of each object and each deletion the key, the UID, and the revisions at which the
// cache received it. A proxy that starts with it lists each resource once and compares the list with the index.
// Watches without a selector resume from revisions before that list: they receive the difference, and of an object
// that was deleted meanwhile its name, namespace and UID. The index follows the cache once a second and at the end of
// Run. What it lacks after a crash, and watches with selectors, are forwarded. The index belongs to a cluster, by the
// UID of the namespace kube-system, or by its address if that can't be read. It never has Secrets.
//
// # Endpoints
//
// /readyz, /livez, /metrics, /debug/pprof and the page below /keepwatch/ are the proxy's own; paths of the server
// with these names cannot be requested through it. Other paths below /keepwatch/ are forwarded. All except /readyz
// and /livez need the permission to get them. A proxy is ready once the server has answered; it stays ready while the
// server is down.
//
// # Audit
//
// [Config].Audit records what the proxy answers itself: reads from memory, its own endpoints, and what it forbids
// there. The server's audit log has what is forwarded, and the reviews.
//
// # Files
//
// Packages below internal:
//
//	access     who sent a request, and whether the server allows it
//	discovery  what the server serves
//	fairness   the order in which requests are answered
//	forward    sends requests to the server
//	index      what the proxy has followed, on disk
//	personal   in which namespaces a user may read
//	socket     watches over WebSockets
//	tables     which Tables are the server's
//	upstream   a resource of the server, as a watch cache reads it
//	verbatim   objects as the server wrote them
//
// Of this package, in the order of a request:
//
//	proxy.go            the way of a request
//	read.go             which reads are answered
//	representation.go   what each follower has
//	personal.go         reads of some namespaces
//	caches.go           resources, from their first use on
//	firstlist.go        reads that wait for their first list
//	selection.go        which resources may be cached
//	named.go            those that are read at the start
//	rights.go           what the proxy's identity needs
//	state.go            the index on disk
//	restore.go          watches that resume from it
//	memory.go           leaves resources to the server
//	forwarding.go       why a request is forwarded
//	endpoints.go        health, metrics, profiles
//	page.go             the page, and its events
//	status.go           what they show
//	resourcemetrics.go  metrics of resources
//	cost.go             how many objects memory looks at for a read
//	activity.go         the use of a resource
//	clients.go          the use by a client
//	advice.go           what it could change
//	savings.go          who answers reads of a resource
//	graph.go            the same of the last quarter of an hour
//	audit.go            what is recorded of all that
package proxy
