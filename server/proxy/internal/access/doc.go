// Package access decides who sent a request, and whether the API server allows it. The server decides both: it reviews
// tokens, and then requests. A [Control] remembers what it has answered, and knows when that may have changed.
//
//	request ─▶ Identify ─▶ Caller ─▶ Decide ─▶ Guard, while the request is open
//	           certificate  token     SubjectAccessReview, or what is remembered
//	                                     ▲
//	        roles, bindings, namespaces ─┘ forget what a change concerns
//
// A [Decision] counts until the roles change, for two minutes at most, and for ten seconds if the proxy may not follow
// the roles. While the server does not answer, the last decisions since the last change count, for ten minutes. A
// server that answers with an error is no outage: it judges the request itself.
//
// [Control.Guard] repeats the decision about an open watch after each change, and the review of its caller on a timer.
// A denial counts when the server repeats it while it is ready: one that starts denies what it will allow.
//
// The [Probe] asks on a timer whether the server answers at all. While it is silent, no review is sent.
//
// # Bounds
//
// Reviews are in flight for eight requests of one user, and for eight tokens of one address, unless the server has
// allowed the request or knows the token. Of all, a hundred are: others wait, and go round-robin by user. A request
// waits ten seconds at most; then what the server has allowed since the last change counts. An open watch waits as long
// as others do. Wrong tokens, denials, and the decisions of personal views are remembered apart: they evict nothing
// else.
//
// # Files
//
//	control.go      all of it, as the proxy uses it
//	identity.go     who sent a request             permission.go  what the server allows
//	tokens.go       by its token                   decisions.go   what it has allowed
//	addresses.go    the client's address           inflight.go    how many reviews at a time
//	certificate.go  by its certificate             scopes.go      what a change of roles concerns
//	own.go          by the proxy's own token       roles.go       when roles change
//	credentials.go  headers that name somebody     role.go        what counts of them
//	                                               namespaces.go  which namespaces there are
//	probe.go        whether the server answers     guard.go       while a request is open
//	outage.go       which of its errors are an     cluster.go     all that, as personal views need it
//	                outage                         reviewqueue.go whose review is next
//	flow.go         who shares bounds              authorizers.go whether roles alone decide
package access
