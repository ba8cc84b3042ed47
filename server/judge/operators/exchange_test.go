package operators

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestLastWrite checks that an operator may ask something while its last write before a crash is executed, as its
// webhook does that admits the write, and nothing between the answer and its end.
func TestLastWrite(t *testing.T) {
	kind, _ := kindOf("crash-after-write")
	traffic := newTraffic(user)
	passes := func() (passed bool) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		defer func() { passed = recover() == nil }()
		traffic.wait(ctx)
		return true
	}
	var asked, afterwards bool
	d := &disturbance{Kind: kind, run: &run{world: &world{traffic: traffic}}}
	q := httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/shop/configmaps/web", nil)
	q = q.WithContext(request.WithRequestInfo(q.Context(), &request.RequestInfo{Verb: "update", Resource: "configmaps"}))
	answer := httptest.NewRecorder()
	kind.meet(d, exchange{t: traffic, w: answer, q: q, record: &Request{Place: Place{Verb: "update"}},
		next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked = passes()
			w.WriteHeader(http.StatusOK)
			afterwards = passes()
		})})
	if !asked || afterwards || answer.Code != http.StatusOK {
		t.Errorf("asked during the write %v, after it %v, %d", asked, afterwards, answer.Code)
	}
	if !passes() || !traffic.activity().dying {
		t.Error("the instance is not killed by its next request")
	}
}

// TestUnevenWrites checks that the writes that not all runs without a fault have are named.
func TestUnevenWrites(t *testing.T) {
	at := func(nth int) Request {
		return Request{Place: Place{Step: 1, Verb: "update", Resource: "configmaps", Namespace: "shop", Name: "web", Nth: nth}}
	}
	all, uneven := places([]*outcome{{requests: []Request{at(1), at(2)}}, {requests: []Request{at(1)}},
		{requests: []Request{at(1), at(2)}}})
	if len(all) != 1 || all[0].Nth != 1 || len(uneven) != 1 || uneven[0].Nth != 2 {
		t.Errorf("%v, uneven %v", all, uneven)
	}
}

// TestShortcoming checks that there is a word for every reason for which no plan is run.
func TestShortcoming(t *testing.T) {
	ref := &reference{states: make([]state, 2)}
	for want, findings := range map[string][]Finding{
		"one of them ends in step 2": nil, "restless, died": {{Verdict: Restless}, {Verdict: Died}},
	} {
		if got := ref.shortcoming(findings); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRecordIsBounded checks that a record says how many writes it lacks.
func TestRecordIsBounded(t *testing.T) {
	traffic := newTraffic(user)
	for range maxRequests + 3 {
		traffic.add(&Request{Place: Place{Step: 1, Verb: "create"}})
	}
	all := traffic.record()
	if last := all[len(all)-1]; len(all) != maxRequests+1 || last.Note != "3 more writes are not recorded" || last.Step != 1 {
		t.Errorf("%d requests, the last one %v", len(all), last)
	}
}
