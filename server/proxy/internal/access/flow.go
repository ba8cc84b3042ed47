package access

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// Flow returns who shares bounds with the sender of a request, without a question to the server: its user, if that is
// known, or else its token, or its address if it has none. Each service account is a flow of its own: the agents of all
// nodes are in one namespace. So is each user that a token impersonates: a gateway sends the requests of all its users
// with one. The server refuses at once what the token may not impersonate. Whom a user with a certificate may
// impersonate is decided here, and its requests are its own flow until then; see FlowAs. Strings are quoted, so that no
// user reads as another flow.
//
// A sender may have any number of flows: who may create a service account, or a token, may create more. Its owner is
// what it cannot multiply: the namespace of a service account, or the user, also for those whom it impersonates. The
// owner of a token that is not reviewed is the address. What such a token says of itself is not verified, so that a
// sender could name somebody else, and use up that one's share. One owner of all of them would be too small: most
// clients that only write or read logs have no review, and the tokens of one sender would push out all others.
func (c *Control) Flow(q *http.Request) (flow, owner string) {
	if certified := CertifiedUser(q.Context()); certified != nil {
		return flowOf(certified)
	}
	owner = "address " + clientAddress(q)
	token := bearerToken(q)
	if token == "" {
		return owner, owner
	}
	digest := sha256.Sum256([]byte(token))
	flow = fmt.Sprintf("token %x", digest)
	if last, isKnown := c.tokens.known.Get(digest); isKnown {
		flow, owner = flowOf(last.(reviewedToken).user)
	}
	if as := q.Header.Get("Impersonate-User"); as != "" {
		flow = FlowAs(flow, as)
	}
	return flow, owner
}

func flowOf(u user.Info) (flow, owner string) {
	return fmt.Sprintf("user %q", u.GetName()), fmt.Sprintf("user %q", readpath.Flow(u))
}

// FlowAs returns the flow of a user whom the sender of a flow impersonates.
func FlowAs(flow, name string) string { return fmt.Sprintf("%s as %q", flow, name) }
