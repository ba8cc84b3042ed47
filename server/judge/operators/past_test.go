package operators

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authuser "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
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
	traffic.travel(&pastReads{proxy: http.NotFoundHandler(), revision: 5}, false)
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

// Old reads end when the operator has decided by them: it has written to the object of the plan's write, or has asked
// for the newest ones of its type. If it may have nothing to do, a longer quiet is enough. An operator that does the
// same again and again is never quiet.
func TestOldReadsEnd(t *testing.T) {
	place := Place{Step: 1, Verb: "create", Resource: "configmaps", Namespace: "shop", Name: "web"}
	reads := func(t *traffic, resource string) {
		q := httptest.NewRequest(http.MethodGet, "/api/v1/"+resource, nil)
		ctx := request.WithUser(q.Context(), &authuser.DefaultInfo{Name: user})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{Verb: "list", Resource: resource, IsResourceRequest: true})
		t.around(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), q.WithContext(ctx))
	}
	writes := func(t *traffic, name string) {
		q := httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/shop/configmaps/"+name, nil)
		info := &request.RequestInfo{Verb: "update", Resource: "configmaps", Namespace: "shop", Name: name}
		q = q.WithContext(request.WithRequestInfo(q.Context(), info))
		t.write(httptest.NewRecorder(), q, http.NotFoundHandler(), info)
	}
	again := func(name string, times int) func(*traffic) {
		return func(t *traffic) {
			for range times {
				writes(t, name)
			}
		}
	}
	for _, c := range []struct {
		name, kind string
		does       func(*traffic)
		newest     bool // the reads are not older
		quiet      time.Duration
		late, ends bool
	}{
		{name: "nothing yet", kind: "stale-restart", quiet: time.Hour},
		{name: "a read of another type", kind: "stale-restart", does: func(t *traffic) { reads(t, "secrets") }, quiet: time.Hour},
		{name: "a write to another object", kind: "stale-restart", does: func(t *traffic) { writes(t, "other") },
			quiet: time.Hour},
		{name: "a read of the type", kind: "stale-restart", does: func(t *traffic) { reads(t, "configmaps") },
			quiet: 3 * time.Second, ends: true},
		{name: "a write to the object", kind: "stale-restart", does: func(t *traffic) { writes(t, "web") },
			quiet: 3 * time.Second, ends: true},
		{name: "a pause that the reference has, too", kind: "stale-restart", does: func(t *traffic) { writes(t, "web") },
			quiet: 2 * time.Second},
		{name: "its patience is over", kind: "stale-restart", late: true, ends: true},
		{name: "nothing to do, for a moment", kind: "time-travel", quiet: 4 * time.Second},
		{name: "nothing to do", kind: "time-travel", quiet: 5 * time.Second, ends: true},
		{name: "a write that has changed nothing", kind: "stale-restart", newest: true, quiet: 3 * time.Second, ends: true},
		{name: "the same write, many times", kind: "stale-restart", does: again("web", manyRepeats), ends: true},
		{name: "the same write, some times", kind: "stale-restart", does: again("web", manyRepeats-1)},
		{name: "many writes in the last step", kind: "stale-restart", does: func(t *traffic) {
			again("web", manyRepeats)(t)
			t.begin(2)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind, _ := kindOf(c.kind)
			traffic, stopped := newTraffic(user), false
			r := &run{options: Options{Quiet: time.Second}, world: &world{traffic: traffic},
				ref: &reference{pauses: []time.Duration{0, 2 * time.Second}}}
			r.fault = &disturbance{Kind: kind, place: place, run: r}
			traffic.fault, r.quiet.time = r.fault, c.quiet
			again("web", manyRepeats)(traffic) // before that
			traffic.travel(&pastReads{stop: func() error { stopped = true; return nil }}, c.newest)
			if c.does != nil {
				c.does(traffic)
			}
			ended, err := r.intervene(t.Context(), 1, c.quiet > 0, c.late)
			if err != nil || ended != c.ends || stopped != c.ends {
				t.Errorf("ended %v, want %v: %v", ended, c.ends, err)
			}
		})
	}
}
