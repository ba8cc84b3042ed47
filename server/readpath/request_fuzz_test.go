package readpath

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// FuzzRequest compares the read path's parser with the API server's director, routes, parsers and
// registry. Either the read path delegates a request, or the API server calls its storage with the same
// parameters and responds in the same encoding.
func FuzzRequest(f *testing.F) {
	for _, seed := range requestSeeds {
		f.Add(seed.target, seed.accept)
	}
	oracle := newLibrary(f, pods, nodes, namespaces)
	resources := map[string]*Resource{}
	for _, k := range []kind{pods, nodes, namespaces} {
		resources[k.resource.Resource] = resourceWithoutObjects(f, k)
	}
	f.Fuzz(func(t *testing.T, target, accept string) {
		q, info := parse(target, accept)
		if q == nil || !info.IsResourceRequest || info.Subresource != "" || info.APIGroup != "" || info.APIVersion != "v1" {
			return
		}
		r := resources[info.Resource]
		if r == nil {
			return
		}
		parsed, why := r.parse(q, info)
		if why != "" {
			return
		}
		want := call{verb: info.Verb, key: parsed.key, options: parsed.options, timeout: parsed.timeout}

		oracle.calls = nil
		w := recorder{httptest.NewRecorder()}
		oracle.handler.ServeHTTP(w, q)
		if len(oracle.calls) != 1 || w.Code != http.StatusOK {
			t.Fatalf("GET %q, Accept %q: the read path calls %v, the library responds %d %s after calling %v", target, accept,
				want, w.Code, w.Body, oracle.calls)
		}
		got := oracle.calls[0]
		if got.String() != want.String() {
			t.Fatalf("GET %q, Accept %q:\nthe read path calls %v\nthe library calls   %v", target, accept, want, got)
		}
		if media, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";"); media != mediaType(parsed.encoding) {
			t.Fatalf("GET %q, Accept %q: the read path answers with %s, the library with %s", target, accept,
				mediaType(parsed.encoding), media)
		}
		// Above longestWatch the library's numbers overflow.
		if off := parsed.timeout - got.timeout; info.Verb == "watch" && parsed.timeout > 0 && parsed.timeout < longestWatch &&
			(off < 0 || off > await.Deadline) {
			t.Fatalf("GET %q: the read path watches for %v, the library for %v", target, parsed.timeout, got.timeout)
		}
	})
}

// recorder is a ResponseWriter with the methods that the library needs.
type recorder struct{ *httptest.ResponseRecorder }

func (recorder) CloseNotify() <-chan bool { return nil }

// parse reads a request as a server does, and returns it with its RequestInfo. It returns nil if a server
// would reject the request.
func parse(target, accept string) (*http.Request, *request.RequestInfo) {
	if strings.ContainsAny(target+accept, "\r\n") {
		return nil, nil
	}
	text := "GET " + target + " HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\nAccept: " + accept + "\r\n\r\n"
	q, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil || q.Method != http.MethodGet {
		return nil, nil
	}
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(q)
	if err != nil {
		return nil, nil
	}
	return q.WithContext(request.WithRequestInfo(q.Context(), info)), info
}

// requestSeeds are requests of every form, and findings of the fuzzer.
var requestSeeds = []struct{ target, accept string }{
	{"/api/v1/pods", "application/json"},
	{"/api/v1/pods/", ""},
	{"/api/v1/pods?limit=500&continue=a", "*/*"},
	{"/api/v1/pods?limit=-1&timeoutSeconds=-1&resourceVersion=0", "application/json"},
	{"/api/v1/namespaces/default/pods?resourceVersion=1&resourceVersionMatch=Exact",
		"application/vnd.kubernetes.protobuf"},
	{"/api/v1/namespaces/default/pods?labelSelector=a%3Db,c+in+(d,e),!f",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
	{"/api/v1/pods?fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Do1",
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json"},
	{"/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3D&limit=1&resourceVersion=1", "application/json"},
	{"/api/v1/nodes?fieldSelector=metadata.name%3D&watch=1&resourceVersion=1", "application/json"},
	{"/api/v1/pods?fieldSelector=metadata.namespace%3D,metadata.name%3D", "application/json"},
	{"/api/v1/namespaces/default/pods/o1?resourceVersion=1", "application/json"},
	{"/api/v1/namespaces/default/pods/o1?watch=1&export=0", "application/json"},
	{"/api/v1/namespaces/default/pods///o1", "application/json"},
	{"/api/v1/namespaces/default/pods/o1//x", "application/json"},
	{"//api/v1/pods", "application/json"},
	{"/apis//v1/pods", "application/json"},
	{"/api/v1/namespaces/default/namespaces/default", "application/json"},
	{"/api/v1/namespaces//nodes", "application/json"},
	{"/api/v1/namespaces/default", "application/json"},
	{"/api/v1/nodes/o1", "application/json"},
	{"/api/v1/nodes?watch=true&timeoutSeconds=10&allowWatchBookmarks=1", "application/json;stream=watch"},
	{"/api/v1/pods?watch=1&timeoutSeconds=9223372036", "application/json"},
	{"/api/v1/pods?watch=1&timeoutSeconds=-9223372036854775808", "application/json"},
	{"/api/v1/pods?watch=1&timeoutSeconds=-1", "application/json"},
	{"/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=5",
		"application/vnd.kubernetes.protobuf;stream=watch,application/json"},
	{"/api/v1/watch/namespaces/default/pods/o1?watch=1", "application/json"},
	{"/api/v1/pods?watch=1&resourceVersion=1&continue=a&fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Do1",
		"application/json"},
	{"/api/v1/pods?watch=0&watch=1;limit=1&pretty=false", "application/json;q=0.1,*/*"},
	{"http://a/api/v1/pods?a%2F=%zz", "application/*"},
	{"/api/v1/namespaces/%2E%2E/pods/%2e", "application/json"},
}
