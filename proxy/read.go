package proxy

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/watchcache"
)

// smallCollection is the number of objects below which the server answers consistent reads: asking it for its
// newest revision costs as much.
const smallCollection = 500

// isConsistentRead reports whether a read must have everything that was written before it.
func isConsistentRead(q *http.Request, info *request.RequestInfo) bool {
	values := q.URL.Query()
	return info.Verb != "watch" && values.Get("resourceVersion") == "" && values.Get("continue") == ""
}

// resumesBefore reports whether a watch resumes from a revision that the cache does not reach back to. The server
// may.
func resumesBefore(q *http.Request, info *request.RequestInfo, cache *watchcache.Cache) bool {
	from, err := keepwatch.ParseRevision(q.URL.Query().Get("resourceVersion"))
	_, difference := cache.Bounds()
	return info.Verb == "watch" && err == nil && from > 0 && from < difference
}

// acceptsOther reports whether a client accepts a response that caches of JSON do not have. The server decides
// which one it sends.
func acceptsOther(q *http.Request) bool {
	for _, accept := range q.Header.Values("Accept") {
		if strings.Contains(accept, "protobuf") || strings.Contains(accept, "cbor") || strings.Contains(accept, "as=") {
			return true
		}
	}
	return false
}
