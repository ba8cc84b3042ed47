// Package proxy answers reads of a Kubernetes API server from watch caches, and forwards all other requests to
// that server. It is in progress: metadata alone and protobuf are forwarded.
//
//	request ─▶ Proxy ─┬─ who? TokenReview ─▶ allowed? SubjectAccessReview ─▶ readpath ◀─ watchcache ◀─ source/kube
//	                  └─ everything else, with the caller's own credentials ─────────────────▶ the API server
//
// # Never worse than the server
//
// The proxy answers a read only if the answer is what the server could have returned: the same bytes and
// the same resource versions, so that a client can move between the proxy and the server. Objects are
// stored as the server's text: their fields need not be known here. These requests are forwarded: writes,
// subresources, upgrades, Tables, protobuf, metadata alone, impersonation, requests without a bearer token,
// watches from before the proxy's first list, field selectors of kinds that are not in fields.go, Secrets unless [Config].Secrets is set, and all reads of a
// resource until its cache has caught up. The server words all refusals.
//
// # Permission
//
// The server decides about each read: it reviews the caller's token, and then the request, with its
// selectors. Decisions are used for two minutes. A change of a role or a binding ends all of them, and open
// watches are decided again; for five seconds after it, decisions are used for one second only, because API
// servers follow the roles each by itself. If the proxy may not read roles, decisions are used for ten
// seconds.
//
// While the server does not answer, the last reviews since the last change of a role count, for ten minutes:
// lists of any state and open watches go on, with a Warning header that says how old the state is. An open watch
// that may no longer be allowed ends after ten seconds without a decision.
//
// # Freshness
//
// A consistent read asks the server for its newest revision, once for all that wait, and is answered when
// the cache has reached it. A quiet resource sends no event: the open watch is then replaced by one
// that ends after three seconds, and kube-apiserver sends it a bookmark a second after its start. The server
// answers consistent reads of small collections.
//
// # Files
//
//	proxy.go        the way of a request              caches.go      resources, from their first use on
//	read.go         which reads are answered          resource.go    what the server says of a resource
//	forward.go      all other requests                source.go      a resource of the server, as a watch
//	identity.go     who sent a request                               cache reads it
//	permission.go   what the server allows            watch.go       its open watch, and confirming ones
//	own.go          the proxy itself as a caller
//	guard.go        while a watch is open             document.go    an object as the server's text
//	roles.go        when that changes                 fields.go      fields that selectors can name
package proxy
