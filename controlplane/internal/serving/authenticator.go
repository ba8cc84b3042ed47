package serving

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
)

// adminUser is the name of the token's user.
const adminUser = "keepwatch-admin"

// Authenticator authenticates the token's user. A client sends the token in a header or, from a
// browser, in the name of a WebSocket subprotocol. Without the token, only health checks are
// answered; the answer to any other request is 401.
func (c *Credentials) Authenticator() authenticator.Request {
	admin := &user.DefaultInfo{Name: adminUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	tokens := tokenfile.New(map[string]*user.DefaultInfo{c.token: admin})
	return union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens), authenticator.RequestFunc(anonymousHealth))
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
// error, which the server would log as its own. The authenticators here read memory only: they
// cannot fail for another reason.
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
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}}, true, nil
}

func isHealthPath(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first == "livez" || first == "readyz" || first == "healthz"
}
