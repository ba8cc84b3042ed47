package faults

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// TestGroupVanishes checks that lists, watches and discovery answer 404 within the times of the plan, and objects do
// not.
func TestGroupVanishes(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	upstream := &rest.Config{Host: server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())}}
	plan, _, err := NamedPlan("group-vanishes")
	if err != nil {
		t.Fatal(err)
	}
	plan.Rules = plan.Rules[1:] // watches end before
	for i := range plan.Rules {
		plan.Rules[i].Match.From.Duration, plan.Rules[i].Match.Until.Duration = 0, 0
	}
	c := newClient(t, New(t, upstream, plan), false)
	for path, want := range map[string]int{
		pods:                          404,
		pods + "?watch=true":          404,
		"/apis":                       404,
		"/apis/apps":                  404,
		"/apis/apps/v1":               404,
		pods + "/a":                   200,
		"/apis/apps/v1/deployments/a": 200,
	} {
		if code, body, err := c.read(t, path); err != nil || code != want {
			t.Errorf("%s: %d %q, %v, want %d", path, code, body, err, want)
		}
	}
}
