// Package tokens issues the tokens of service accounts, authenticates requests by them, and serves the documents by
// which others verify them. Claims, checks and messages are those of kube-apiserver v1.36.
//
// A token is a signed JWT. It is valid for its audiences until it expires, as long as its service account and the
// object that it is bound to exist with the same UIDs. Nothing is cached: a deletion takes effect with the next
// request.
//
//	keys.go            the key that signs, and those that verify
//	issuer.go          Issuer: issues tokens
//	claims.go          what a token says
//	authenticator.go   authenticates requests by tokens
//	openid.go          the documents of OpenID Connect discovery
package tokens
