// Package serving has the parts of a server that clients meet first: the listener with its limit of
// connections, the certificate, the credentials of its clients, and their authentication.
//
// One certificate authority and one token are in the data folder, where they outlive restarts. The
// token's user is the administrator. The users of client certificates have the names and groups in them, if the
// authority, or one that the options name, has signed them.
//
//	listener.go        accepts connections, and closes some if there are too many
//	descriptors_*.go   the limit of open files, which bounds the connections
//	credentials.go     what a client needs: address, certificate authority, token
//	authority.go       the certificate authority, and the serving certificate that it issues
//	token.go           the token
//	kubeconfig.go      the file with these for clients
//	authenticator.go   authenticates requests by the token, certificates and service accounts' tokens
package serving
