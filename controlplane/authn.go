package controlplane

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

// AdminUser is the name of the token's user.
const AdminUser = "keepwatch-admin"

// newAuthenticator knows one token, in a header or, from browsers, in the name of a WebSocket's
// subprotocol. Without it only health checks are answered; everything else is 401.
func newAuthenticator(token string) authenticator.Request {
	admin := &user.DefaultInfo{Name: AdminUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	tokens := tokenfile.New(map[string]*user.DefaultInfo{token: admin})
	return union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens), authenticator.RequestFunc(anonymousHealth))
}

// introducing tells a listener from where requests with a credential came.
func introducing(listener *trackingListener, authenticate authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := authenticate.AuthenticateRequest(r)
		if ok && err == nil && response.User.GetName() != user.Anonymous {
			listener.known(r.RemoteAddr)
		}
		return response, ok, err
	})
}

// withoutErrors answers a wrong credential with "nobody", and not with an error, which the server would
// log as one of its own. None of the authenticators here can fail for another reason: they look into
// memory only.
func withoutErrors(authenticate authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := authenticate.AuthenticateRequest(r)
		return response, ok && err == nil, nil
	})
}

// anonymousHealth lets anyone ask for the server's health, and nothing else.
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
