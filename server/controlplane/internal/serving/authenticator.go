package serving

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
)

// adminUser is the name of the token's user.
const adminUser = "keepwatch-admin"

// Authenticator authenticates the token's user, the users that accounts authenticates by other tokens, and the users of
// client certificates: their names are the common names, their groups the organizations. A client sends a token in a
// header or, from a browser, in the name of a WebSocket subprotocol. The server's own token is for the given audiences.
// Without a credential, only health checks are answered; the answer to any other request is 401.
func (c *Credentials) Authenticator(accounts authenticator.Token,
	audiences authenticator.Audiences) authenticator.Request {
	admin := &user.DefaultInfo{Name: adminUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	own := authenticator.WrapAudienceAgnosticToken(audiences, tokenfile.New(map[string]*user.DefaultInfo{c.token: admin}))
	tokens := tokenunion.New(own, accounts)
	users := union.New(x509.NewDynamic(c.clients.VerifyOptions, x509.CommonNameUserConversion), bearertoken.New(tokens),
		websocket.NewProtocolAuthenticator(tokens))
	return union.New(group.NewAuthenticatedGroupAdder(users), authenticator.RequestFunc(anonymousHealth))
}

// MarkingAuthenticated returns an authenticator that marks the connections of authenticated requests
// in listener.
func MarkingAuthenticated(listener *Listener, authenticate authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := authenticate.AuthenticateRequest(r)
		if ok && err == nil && response.User.GetName() != user.Anonymous {
			listener.markAuthenticated(r.RemoteAddr)
		}
		return response, ok, err
	})
}

// WithoutErrors returns an authenticator that answers a wrong credential with no user instead of an
// error, which the server would log as its own. An error of the storage, which the authenticator of service accounts
// reads, is logged where it occurs.
func WithoutErrors(authenticate authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := authenticate.AuthenticateRequest(r)
		return response, ok && err == nil, nil
	})
}

// anonymousHealth authenticates requests without a credential as anonymous, for the health checks only.
func anonymousHealth(r *http.Request) (*authenticator.Response, bool, error) {
	if r.Header.Get("Authorization") != "" || !isHealthPath(r.URL.Path) {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous,
		Groups: []string{user.AllUnauthenticated}}}, true, nil
}

func isHealthPath(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first == "livez" || first == "readyz" || first == "healthz"
}
