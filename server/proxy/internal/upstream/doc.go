// Package upstream is a resource of the API server behind the proxy, as a watch cache reads it: source/kube with what a
// cache of a server that it does not own needs.
//
// A [Source] confirms that a quiet resource has not changed, by an open watch that ends after three seconds, which the
// server sends a bookmark before. It knows since when the server does not answer. After that it trusts no revision of
// the server until it has asked for the newest one: a server that was restored from a backup accepts a watch from a
// revision above its newest, and sends nothing. What the proxy follows for itself is [Verified] at each watch.
//
// # Files
//
//	source.go  lists and watches    watch.go     the open watch, and confirming ones
//	                                verified.go  what the proxy follows for itself
package upstream
