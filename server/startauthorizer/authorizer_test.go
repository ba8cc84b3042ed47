package startauthorizer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rules allows the verb always, and watch after the rules were loaded.
type rules struct{ loaded atomic.Bool }

func (r *rules) Authorize(_ context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case request.GetVerb() == "always":
		return authorizer.DecisionAllow, "", nil
	case request.GetVerb() == "watch" && r.loaded.Load():
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r *rules) ConditionsAwareAuthorize(ctx context.Context,
	request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, request))
}

func (r *rules) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

func TestRequestsWaitForAuthorizers(t *testing.T) {
	for _, c := range []struct {
		name, verb string
		loadAfter  time.Duration // zero is never
		allowed    bool
		after      time.Duration
	}{
		{"allowed without rules", "always", 0, true, 0},
		{"allowed by a rule", "watch", time.Second, true, time.Second},
		{"not allowed", "delete", time.Second, false, time.Second},
		{"rules are not loaded", "watch", 0, false, timeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, synced := &rules{}, make(chan struct{})
				a := New(inner, synced)
				if c.loadAfter > 0 {
					time.AfterFunc(c.loadAfter, func() { inner.loaded.Store(true); close(synced) })
				}
				began := time.Now()
				decision, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{Verb: c.verb})
				if allowed := decision == authorizer.DecisionAllow; err != nil || allowed != c.allowed ||
					time.Since(began) != c.after {
					t.Errorf("allowed %v after %v, error %v; want %v after %v", allowed, time.Since(began), err, c.allowed, c.after)
				}
				aware := a.ConditionsAwareAuthorize(t.Context(), authorizer.AttributesRecord{Verb: c.verb})
				if aware.IsAllow() != c.allowed {
					t.Errorf("conditions-aware: %v, want %v", aware, c.allowed)
				}
			})
		})
	}
}

// When the rules have been read, a request is decided once.
func TestRequestsAreRefusedAtOnce(t *testing.T) {
	synced := make(chan struct{})
	close(synced)
	counting := &countingRules{}
	a := New(counting, synced)
	if decision, _, _ := a.Authorize(t.Context(),
		authorizer.AttributesRecord{Verb: "delete"}); decision == authorizer.DecisionAllow || counting.calls != 1 {
		t.Errorf("decision %v after %d calls", decision, counting.calls)
	}
}

type countingRules struct {
	rules
	calls int
}

func (r *countingRules) Authorize(ctx context.Context,
	request authorizer.Attributes) (authorizer.Decision, string, error) {
	r.calls++
	return r.rules.Authorize(ctx, request)
}
