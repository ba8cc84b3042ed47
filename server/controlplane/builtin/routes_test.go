package builtin

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A request installs the routes of its own group only, and the list of all paths those of all.
func TestRoutesAreInstalledWhenRequested(t *testing.T) {
	for path, want := range map[string]string{
		"/apis/apps/v1/deployments": "apps", "/apis/apps": "apps", "/apis/apps/": "apps", "/": "apps batch",
		"/index.html":  "apps batch",
		"/api/v1/pods": "", "/apis": "", "/apis/": "", "/apis/app/v1": "", "/apis/example.com/v1/apps": "", "/openapi/v3": "",
		"/apis//apps": "",
	} {
		installed := map[string]bool{}
		routes := Routes{later: map[string]func() error{}}
		for _, group := range []string{"apps", "batch"} {
			routes.later[group] = func() error { installed[group] = true; return nil }
		}
		routes.Before(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path,
			nil))
		got := ""
		if installed["apps"] {
			got = "apps"
		}
		if installed["batch"] {
			got += " batch"
		}
		if got != want {
			t.Errorf("%s installed %q, not %q", path, got, want)
		}
	}
}
