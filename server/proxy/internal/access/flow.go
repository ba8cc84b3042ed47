package access

import (
	"crypto/sha256"
	"fmt"
	"net/http"
)

// Flow returns who shares bounds with the sender of a request, without a question to the server: its user, if that is
// known, or else its token, or its address if it has none. Each service account is a flow of its own: the agents of all
// nodes are in one namespace. So is each user that a token impersonates: a gateway sends the requests of all its users
// with one. The server refuses at once what the token may not impersonate. Whom a user with a certificate may
// impersonate is decided here, and its requests are its own flow until then; see FlowAs. Strings are quoted, so that no
// user reads as another flow.
func (c *Control) Flow(q *http.Request) string {
	if certified := CertifiedUser(q.Context()); certified != nil {
		return fmt.Sprintf("user %q", certified.GetName())
	}
	token := bearerToken(q)
	if token == "" {
		return "address " + clientAddress(q)
	}
	digest := sha256.Sum256([]byte(token))
	flow := fmt.Sprintf("token %x", digest)
	if last, isKnown := c.tokens.known.Get(digest); isKnown {
		flow = fmt.Sprintf("user %q", last.(reviewedToken).user.GetName())
	}
	if as := q.Header.Get("Impersonate-User"); as != "" {
		flow = FlowAs(flow, as)
	}
	return flow
}

// FlowAs returns the flow of a user whom the sender of a flow impersonates.
func FlowAs(flow, name string) string { return fmt.Sprintf("%s as %q", flow, name) }
