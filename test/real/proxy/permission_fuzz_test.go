package proxy

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// ownPaths are answered by the proxy itself.
var ownPaths = []string{"/keepwatch", "/metrics", "/readyz", "/livez", "/healthz", "/debug"}

// FuzzPermission compares the status of any read, with any header, with the server's. Users have random rights.
func FuzzPermission(f *testing.F) {
	p := newPopulation(newRig(f), rand.New(rand.NewPCG(1, 3)))
	for range 60 {
		p.changeRole()
	}
	p.compare(200) // both have noticed the roles
	for i := range 300 {
		q := p.request()
		name, value := "", ""
		if len(q.header) > 4 {
			name, value = q.header[4], q.header[5]
		}
		f.Add(uint8(i), q.method == http.MethodHead, q.path, q.header[3], name, value)
	}
	for _, path := range []string{"/api/v1/namespaces/one/configmaps/", "/api/v1//configmaps",
		"/api/v1/namespaces/one/../two/configmaps", "/api/v1/watch/configmaps?timeoutSeconds=1",
		"/api/v1/namespaces/%2e%2e/configmaps", "/api/v1/configmaps?watch=true&watch=false&timeoutSeconds=1",
		"/api/v1/namespaces/one/configmaps?fieldSelector=metadata.name=map-001&fieldSelector=",
		"/api/v1/namespaces/one%2Fconfigmaps"} {
		for user := range uint8(len(p.users)) {
			f.Add(user, false, path, inJSON, "", "")
		}
	}
	f.Fuzz(func(t *testing.T, user uint8, head bool, path, accept, name, value string) {
		q := request{method: http.MethodGet, path: path, header: []string{"Authorization", "Bearer " +
			p.users[int(user)%len(p.users)].Token, "Accept", accept, name, value}}
		if head {
			q.method = http.MethodHead
		}
		if name == "" {
			q.header = q.header[:4]
		}
		if !comparable(q) {
			return
		}
		for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			got, gotErr := send(t.Context(), p.proxied, p.url, q)
			want, wantErr := send(t.Context(), p.direct, p.server.Config().Host, q)
			if got == want || gotErr != nil && wantErr != nil {
				return
			}
			if time.Since(begun) > await.Deadline {
				t.Fatalf("%s %q %q: %d %v, the server: %d %v", q.method, q.path, q.header[2:], got, gotErr, want, wantErr)
			}
		}
	})
}

// comparable reports whether a request can be sent, for the API, by a client that keeps to HTTP.
func comparable(q request) bool {
	parsed, err := url.ParseRequestURI(q.path)
	if err != nil || parsed.Host != "" || !strings.HasPrefix(q.path, "/") || strings.ContainsAny(q.path, "#\\") ||
		slices.ContainsFunc(ownPaths, func(own string) bool { return strings.HasPrefix(parsed.Path, own) }) {
		return false
	}
	for i := 0; i < len(q.header); i += 2 {
		if !httpguts.ValidHeaderFieldName(q.header[i]) || !httpguts.ValidHeaderFieldValue(q.header[i+1]) {
			return false
		}
		switch http.CanonicalHeaderKey(q.header[i]) { // of the connection
		case "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer",
			"Transfer-Encoding", "Upgrade":
			return false
		}
	}
	return true
}
