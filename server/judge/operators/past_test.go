package operators

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The watches of an instance that is dead are none of the next one, which is not quiet before it has its own.
func TestForgetWatches(t *testing.T) {
	traffic, cut := newTraffic(user), false
	traffic.watches[&openWatch{cancel: func() { cut = true }}] = struct{}{}
	if traffic.forgetWatches(); !cut || traffic.activity().watches != 0 {
		t.Errorf("cut %v, %d watches", cut, traffic.activity().watches)
	}
}

// A client that has listed the newest state, and watches a server that is behind, waits: the server sends no 410.
func TestWatchAhead(t *testing.T) {
	traffic := newTraffic(user)
	traffic.travel(&pastReads{proxy: http.NotFoundHandler(), revision: 5})
	ctx, cancel := context.WithCancel(t.Context())
	q := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?watch=true&resourceVersion=6", nil).WithContext(ctx)
	answer, ended := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(ended)
		traffic.pastFor(q).ServeHTTP(answer, q)
	}()
	cancel()
	<-ended
	if answer.Code != http.StatusOK || answer.Body.Len() > 0 {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	q.URL.RawQuery = "watch=true&resourceVersion=5"
	answer = httptest.NewRecorder()
	if traffic.pastFor(q).ServeHTTP(answer, q); answer.Code != http.StatusNotFound {
		t.Errorf("a watch from the past is answered with %d", answer.Code)
	}
}
