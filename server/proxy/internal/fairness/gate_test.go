package fairness

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// A list occupies seats by the objects that memory looks at for it, whatever else its resource has.
func TestSeatsOfLists(t *testing.T) {
	var objects int64
	g := New(nil, 10, time.Minute, func(*http.Request) (storage.Stats, error) {
		return storage.Stats{ObjectCount: objects, EstimatedAverageObjectSizeBytes: 1000}, nil
	})
	estimate := g.estimate(func(string) uint64 { return 100 })
	q := httptest.NewRequest(http.MethodGet, "/api/v1/pods?resourceVersion=0", nil)
	q = q.WithContext(request.WithRequestInfo(q.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: "list",
		Resource: "pods"}))
	for _, c := range []struct {
		objects int64
		seats   uint64
	}{{0, 1}, {10, 1}, {1000, 10}} {
		objects = c.objects
		if got := estimate(q, "", "").InitialSeats; got != c.seats {
			t.Errorf("a list of %d objects occupies %d seats, want %d", c.objects, got, c.seats)
		}
	}
}
