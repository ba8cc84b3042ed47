package faults

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClassify(t *testing.T) {
	tests := []struct {
		method, uri string
		want        Request
	}{
		{"GET", "/api/v1/pods", Request{Class: List, Resource: "pods"}},
		{"GET", "/api/v1/pods?limit=500&continue=x", Request{Class: ListPage, Resource: "pods"}},
		{"GET", "/api/v1/pods?limit=1", Request{Class: Newest, Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=true&resourceVersion=5", Request{Class: Watch, Resource: "pods", Revision: "5"}},
		{"GET", "/api/v1/pods?watch=0", Request{Class: List, Resource: "pods"}},
		{"GET", "/apis/apps/v1/deployments?watch=1&sendInitialEvents=true", Request{Class: StreamList,
			Resource: "deployments.apps"}},
		{"GET", "/apis/apps/v1/deployments?watch=1&sendInitialEvents=false",
			Request{Class: Watch, Resource: "deployments.apps"}},
		{"GET", "/api/v1/namespaces/a/pods/b/log", Request{Class: Get, Resource: "pods", Namespace: "a", Name: "b"}},
		{"GET", "/api/v1/namespaces", Request{Class: List, Resource: "namespaces"}},
		{"GET", "/api/v1/namespaces/a", Request{Class: Get, Resource: "namespaces", Name: "a"}},
		{"PUT", "/api/v1/namespaces/a/finalize", Request{Class: Write, Resource: "namespaces", Name: "a"}},
		{"DELETE", "/apis/example.com/v1/namespaces/a/widgets", Request{Class: Write, Resource: "widgets.example.com",
			Namespace: "a"}},
		{"GET", "/apis/example.com/v1", Request{Class: Other}},
		{"GET", "/api/v1/namespaces/a/pods/b/exec?command=id", Request{Class: Write, Resource: "pods", Namespace: "a",
			Name: "b"}},
		{"GET", "/api/v1", Request{Class: Other}},
		{"GET", "/readyz", Request{Class: Other}},
	}
	for _, test := range tests {
		test.want.URI = test.uri
		r := httptest.NewRequest(test.method, test.uri, nil)
		if test.want.Class == Watch || strings.Contains(test.uri, "/exec?") {
			r.Header.Set("Upgrade", "websocket")
		}
		if diff := cmp.Diff(test.want, classify(r), cmp.AllowUnexported(Request{})); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", test.method, test.uri, diff)
		}
	}
}
