package fairness

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// A list occupies seats by the objects that memory looks at for it, whatever else its resource has, and whatever limit
// it names: the objects are those of its page where it has one.
func TestSeatsOfLists(t *testing.T) {
	var objects int64
	g := New(nil, 10, time.Minute, func(*http.Request) (storage.Stats, error) {
		return storage.Stats{ObjectCount: objects, EstimatedAverageObjectSizeBytes: 1000}, nil
	})
	estimate := g.estimate(func(string) uint64 { return 100 })
	for _, c := range []struct {
		verb, query, name string
		objects           int64
		seats             uint64
	}{
		{"list", "", "", 0, 1}, {"list", "", "", 10, 1}, {"list", "", "", 1000, 10}, {"list", "&limit=1", "", 1000, 10},
		{"watch", "", "", 1000, 10}, {"watch", "&limit=1", "", 1000, 10},
		{"list", "", "web", 1, 1}, {"list", "", "web", 1000, 10}, {"watch", "", "web", 1000, 10}, {"get", "", "web", 1000, 1},
	} {
		objects = c.objects
		q := httptest.NewRequest(http.MethodGet, "/api/v1/pods?resourceVersion=0"+c.query, nil)
		q = q.WithContext(request.WithRequestInfo(q.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: c.verb,
			Resource: "pods", Name: c.name}))
		if got := estimate(q, "", "").InitialSeats; got != c.seats {
			t.Errorf("a %s of %d objects%s occupies %d seats, want %d", c.verb, c.objects, c.query, got, c.seats)
		}
	}
}
