package discovery

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A 404 about the APIService of a resource proves that the server itself answers for the resource only if the server
// says that it has no such object, or shows no group of APIServices. A load balancer without a backend answers 404,
// too: an aggregated API may show its callers less than the permissions of the cluster say.
func TestBelongs(t *testing.T) {
	const (
		none     = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"name":"v1.example.com","group":"apiregistration.k8s.io","kind":"apiservices"},"code":404}`
		unserved = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{},"code":404}`
		groups   = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apiregistration.k8s.io"},{"name":"example.com"}]}`
		without  = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com"}]}`
		other    = `{"kind":"APIService","spec":{"service":{"name":"another","namespace":"server"}}}`
		own      = `{"kind":"APIService","spec":{}}`
	)
	for name, test := range map[string]struct {
		code       int
		body       string // of the APIService
		groupsCode int
		groups     string
		wrong      string // the error
		temporary  bool
	}{
		"the server's":     {code: http.StatusOK, body: own},
		"another server's": {code: http.StatusOK, body: other, wrong: "is an aggregated API"},
		"no APIService": {code: http.StatusNotFound, body: none, groupsCode: http.StatusOK,
			groups: groups},
		"a server without aggregation": {code: http.StatusNotFound, body: unserved, groupsCode: http.StatusOK,
			groups: without},
		"a load balancer": {code: http.StatusNotFound, body: "default backend - 404",
			groupsCode: http.StatusOK, groups: groups, wrong: "not ready", temporary: true},
		"a load balancer, twice": {code: http.StatusNotFound, body: "default backend - 404",
			groupsCode: http.StatusNotFound, groups: "default backend - 404", wrong: "404"},
		"a server that does not aggregate": {code: http.StatusNotFound, body: unserved, groupsCode: http.StatusOK,
			groups: groups, wrong: "not ready", temporary: true},
		"a load balancer, then a down time": {code: http.StatusNotFound, body: "", groupsCode: http.StatusServiceUnavailable,
			wrong: "503", temporary: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Server{&http.Client{Transport: answering(func(q *http.Request) (int, string) {
				if q.URL.Path == "/apis" {
					return test.groupsCode, test.groups
				}
				return test.code, test.body
			})}, &url.URL{Scheme: "https", Host: "server"}}
			err := d.belongs(t.Context(), "", &Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com",
				Version: "v1", Resource: "widgets"}})
			switch {
			case test.wrong == "" && err != nil, test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Errorf("%v, want %q", err, test.wrong)
			case err != nil && IsAnswer(err) == test.temporary:
				t.Errorf("%v is an answer: %v", err, IsAnswer(err))
			}
		})
	}
}
