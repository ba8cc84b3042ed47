// Package discovery asks the API server what it serves: which resources, in which versions, how it writes their
// objects, and which cluster it is.
//
// [Server.Describe] is four questions about a resource: whether the server itself answers for it, or another one behind
// its aggregator; its kind; how a list of it begins; and how the bookmark of a streaming list without objects is
// written. An error that is an answer, by [IsAnswer], says what the resource is: it cannot be followed. Any other means
// that the server is down, starts or is busy.
//
// # Files
//
//	resource.go  what it says of a resource    server.go   its answers
//	group.go     the versions of a group       cluster.go  its identity
package discovery
