package access

import (
	"crypto/sha256"
	"net/http"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// Flow returns who shares bounds with the sender of a request, without a question to the server: the flow of its user
// if that is known, or else its token, or its address if it has none.
func (c *Control) Flow(q *http.Request) string {
	if certified := CertifiedUser(q.Context()); certified != nil {
		return readpath.Flow(certified)
	}
	if c.IsOwn(q) {
		return "own"
	}
	token := bearerToken(q)
	if token == "" {
		return "address " + clientAddress(q)
	}
	digest := sha256.Sum256([]byte(token))
	if last, isKnown := c.tokens.known.Get(digest); isKnown {
		return readpath.Flow(last.(reviewedToken).user)
	}
	return "token " + string(digest[:])
}
