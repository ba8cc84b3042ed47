package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// judge is a server that reviews requests. A real one can't be made to fail at a time of the test's choice.
type judge struct {
	allows, fails atomic.Bool  // fails breaks connections
	status        atomic.Int64 // if not zero, the answer to all reviews
	asked         atomic.Int64
	answers       sync.RWMutex // a writer of it delays all answers
}

func (j *judge) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	j.asked.Add(1)
	j.answers.RLock()
	defer j.answers.RUnlock()
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil || j.fails.Load() {
		panic(http.ErrAbortHandler)
	}
	if status := j.status.Load(); status != 0 {
		w.Header().Set("Retry-After", "1") // as a server that answers 429
		w.WriteHeader(int(status))
		return
	}
	review.Status.Allowed = j.allows.Load()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&review)
}

func newJudge(t *testing.T) (*judge, *permissions) {
	j := &judge{}
	server := httptest.NewServer(j)
	t.Cleanup(server.Close)
	client, err := authorizationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPermissions(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return j, p
}

func asks(name, resource string) authorizer.Attributes {
	return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}, Verb: "list", APIVersion: "v1",
		Resource: resource, ResourceRequest: true}
}

func (p *permissions) expect(t *testing.T, a authorizer.Attributes, want bool, fails bool) {
	t.Helper()
	if got, _, err := p.allowed(t.Context(), a); got != want || (err != nil) != fails {
		t.Errorf("%s %s: %v, %v", a.GetUser().GetName(), a.GetResource(), got, err)
	}
}

// Decisions are remembered until a role changes. While the server does not answer, the last decision since
// that change counts, and no other one.
func TestPermissions(t *testing.T) {
	t.Parallel()
	j, p := newJudge(t)
	j.allows.Store(true)
	p.expect(t, asks("ada", "pods"), true, false)
	j.allows.Store(false)
	p.expect(t, asks("ada", "pods"), true, false)
	p.expect(t, asks("bob", "pods"), false, false)
	if n := j.asked.Load(); n != 2 {
		t.Errorf("the server was asked %d times", n)
	}
	p.forget("")
	p.expect(t, asks("ada", "pods"), false, false)

	j.allows.Store(true)
	p.forget("")
	p.expect(t, asks("ada", "pods"), true, false)
	j.fails.Store(true)
	p.mu.Lock()
	p.renew(p.cluster, 0)
	p.mu.Unlock()
	p.expect(t, asks("ada", "pods"), true, false)
	p.expect(t, asks("ada", "secrets"), false, true)
	p.expect(t, asks("bob", "pods"), false, true)
	j.fails.Store(false)
	for status, allowed := range answersToReviews {
		j.status.Store(int64(status))
		p.expect(t, asks("ada", "pods"), allowed, !allowed)
	}
	j.status.Store(0)
	j.fails.Store(true)
	p.forget("")
	p.expect(t, asks("ada", "pods"), false, true)
}

// A server has other authorizers than roles once it has allowed something that no role allows, with a reason or
// without.
func TestBeyondRoles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		group, why string
		resource   bool
		want       bool
	}{
		{"devs", `RBAC: allowed by RoleBinding "x/a"`, true, false},
		{"devs", "the policy says so", true, true},
		{"devs", "the policy says so", false, true},
		{"devs", "", true, true}, // a webhook
		{"devs", "", false, false},
		{"system:masters", "", true, false},
		{"system:masters", "the policy says so", true, true},
		{"system:nodes", "", true, false},
	} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ada", Groups: []string{c.group}}, Verb: "get",
			ResourceRequest: c.resource}
		if got := isBeyondRoles(a, c.why); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A denial is confirmed by a decision of the server, not by the denial that is remembered.
func TestConfirmation(t *testing.T) {
	j, p := newJudge(t)
	p.expect(t, asks("ada", "pods"), false, false)
	j.fails.Store(true)
	if allowed, err := p.confirmed(t.Context(), asks("ada", "pods"), p.made); allowed || err == nil {
		t.Errorf("while the server does not decide: %v, %v", allowed, err)
	}
	j.fails.Store(false)
	j.allows.Store(true)
	if allowed, err := p.confirmed(t.Context(), asks("ada", "pods"), p.made); !allowed || err != nil {
		t.Errorf("when the server allows it: %v, %v", allowed, err)
	}
}

// knownCaller is the caller of a request, whom the server knows for ever.
func knownCaller(a authorizer.Attributes) *Caller {
	return &Caller{Info: a.GetUser(), again: func(context.Context) (user.Info, error) { return a.GetUser(), nil }}
}

// guarded returns the context of an open watch that is allowed.
func guarded(t *testing.T, p *permissions) context.Context {
	t.Helper()
	a := asks("ada", "pods")
	_, number, err := p.allowed(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := p.guard(t.Context(), knownCaller(a), a, number)
	t.Cleanup(end)
	return ctx
}

// A change of a role ends a guarded request that is no longer allowed, and no other one.
func TestGuard(t *testing.T) {
	t.Parallel()
	j, p := newJudge(t)
	j.allows.Store(true)
	ctx := guarded(t, p)
	for range 3 {
		before := j.asked.Load()
		p.forget("")
		for j.asked.Load() == before {
			if ctx.Err() != nil {
				t.Fatal("an allowed request has ended")
			}
			time.Sleep(time.Millisecond)
		}
	}
	j.allows.Store(false)
	p.forget("")
	<-ctx.Done()
}

// After a change of a role, the server is asked once about all open watches of a user with the same parameters.
func TestGuardsShareReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slow{}
		p, _ := queued(t, server.decide)
		var guarded []context.Context
		for i := range 100 {
			a := asks([]string{"ada", "bob"}[i%2], "pods")
			_, number, err := p.allowed(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := p.guard(t.Context(), knownCaller(a), a, number)
			defer end()
			guarded = append(guarded, ctx)
		}
		before := server.asked.Load()
		server.latency, server.revoked = settlingFor/2, "ada"
		p.forget("")
		time.Sleep(3 * settlingFor)
		synctest.Wait()
		for i, ctx := range guarded {
			if revoked := i%2 == 0; revoked != (ctx.Err() != nil) {
				t.Errorf("watch %d: revoked %v, and ended with %v", i, revoked, ctx.Err())
			}
		}
		// A denial is confirmed once, and what is allowed is asked for again until the change has settled.
		if n := server.asked.Load() - before; n < 4 || n > 6 {
			t.Errorf("the server was asked %d times about the watches of two users", n)
		}
	})
}

// A question is not given up with the caller that asked it: others wait for the answer.
func TestAskerGoes(t *testing.T) {
	j, p := newJudge(t)
	j.allows.Store(true)
	j.answers.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	for _, ctx := range []context.Context{ctx, t.Context()} {
		both.Go(func() {
			if allowed, _, err := p.allowed(ctx, asks("ada", "pods")); !allowed || err != nil {
				t.Errorf("allowed: %v, %v", allowed, err)
			}
		})
		for j.asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	j.answers.Unlock()
	both.Wait()
}

// What a decision depends on is in its key.
func TestReviewsDiffer(t *testing.T) {
	base := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "a"}, Verb: "list", Namespace: "n", APIGroup: "g",
		APIVersion: "v", Resource: "r", ResourceRequest: true}
	seen := map[digest]int{describe(base): -1}
	for i, change := range []func(*authorizer.AttributesRecord){
		func(r *authorizer.AttributesRecord) { r.User = &user.DefaultInfo{Name: "b"} },
		func(r *authorizer.AttributesRecord) { r.User = &user.DefaultInfo{Name: "a", UID: "u"} },
		func(r *authorizer.AttributesRecord) {
			r.User = &user.DefaultInfo{Name: "a", Groups: []string{"x", "y"}}
		},
		func(r *authorizer.AttributesRecord) { r.User = &user.DefaultInfo{Name: "a", Groups: []string{"x y"}} },
		func(r *authorizer.AttributesRecord) {
			r.User = &user.DefaultInfo{Name: "a", Extra: map[string][]string{"k": {"v"}}}
		},
		func(r *authorizer.AttributesRecord) { r.Verb = "watch" },
		func(r *authorizer.AttributesRecord) { r.Namespace = "" },
		func(r *authorizer.AttributesRecord) { r.Name = "n" },
		func(r *authorizer.AttributesRecord) { r.APIGroup, r.APIVersion = "", "g" },
		func(r *authorizer.AttributesRecord) { r.Resource = "other" },
		func(r *authorizer.AttributesRecord) { r.Subresource = "status" },
		func(r *authorizer.AttributesRecord) { r.FieldSelectorParsingErr = context.Canceled },
		selectsFields("metadata.name!=zz,spec.nodeName=n1"),
		selectsFields(`metadata.name!=zz} {\= spec.nodeName n1`), // one term that prints as those two
		selectsFields("metadata.name!=zz"),
		selectsLabels("a in (b,c)"),
		selectsLabels("a in (b),a in (c)"),
		selectsLabels("a notin (b,c)"),
		func(r *authorizer.AttributesRecord) { r.ResourceRequest = false },
		func(r *authorizer.AttributesRecord) { r.ResourceRequest, r.Path = false, "/metrics" },
	} {
		r := base
		change(&r)
		if other, found := seen[describe(r)]; found {
			t.Errorf("changes %d and %d have one key", i, other)
		}
		seen[describe(r)] = i
	}
}

// A decision is that of a user: neither of the value that says who it is, where another user's may be later, nor of one
// review of its token.
func TestDecisionsAreOfUsers(t *testing.T) {
	t.Parallel()
	j, p := newJudge(t)
	ask := func(by *Caller) authorizer.Attributes {
		ctx := request.WithRequestInfo(request.WithUser(t.Context(), by), &request.RequestInfo{IsResourceRequest: true,
			Verb: "list", APIVersion: "v1", Resource: "secrets"})
		a, err := filters.GetAuthorizerAttributes(ctx) // as the proxy does
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ada := func() *user.DefaultInfo {
		return &user.DefaultInfo{Name: "ada", Groups: []string{"devs"}, Extra: map[string][]string{"a": {"1"}, "b": nil}}
	}
	known := ada()
	by := &Caller{Info: known}
	j.allows.Store(true)
	p.expect(t, ask(by), true, false)
	j.allows.Store(false)
	p.expect(t, ask(&Caller{Info: ada(), expires: time.Now()}), true, false)
	if n := j.asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times about one user", n)
	}
	*known = user.DefaultInfo{Name: "eve"}
	p.expect(t, ask(by), false, false)
}

// The decisions that personal views need make none of others forgotten.
func TestDecisionsOfViews(t *testing.T) {
	t.Parallel()
	_, p := newJudge(t)
	asked := 0
	allow := func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		asked++
		return authorizer.DecisionAllow, "", nil
	}
	p.server = authorizer.AuthorizerFunc(allow)
	p.expect(t, asks("ada", "pods"), true, false)
	views := Reviews{permissions: p}
	for i := range maxReviews + 1 {
		a := asks("bob", "pods").(authorizer.AttributesRecord)
		a.Namespace = fmt.Sprint("n", i)
		if allowed, err := views.Decide(t.Context(), a, i%2 == 0); !allowed || err != nil {
			t.Fatalf("%v, %v", allowed, err)
		}
	}
	p.expect(t, asks("ada", "pods"), true, false)
	if asked != maxReviews+2 {
		t.Errorf("the server was asked %d times", asked)
	}
}

func selectsFields(text string) func(*authorizer.AttributesRecord) {
	return func(r *authorizer.AttributesRecord) {
		r.FieldSelectorRequirements = fields.ParseSelectorOrDie(text).Requirements()
	}
}

func selectsLabels(text string) func(*authorizer.AttributesRecord) {
	return func(r *authorizer.AttributesRecord) {
		selector, err := labels.Parse(text)
		if err != nil {
			panic(err)
		}
		r.LabelSelectorRequirements, _ = selector.Requirements()
	}
}

// holding is a server that does not answer reviews about secrets until released is closed. It denies everything about
// them, and allows all else.
type holding struct {
	released              chan struct{}
	asked, inFlight, most atomic.Int64 // about secrets
}

func (h *holding) decide(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() != "secrets" {
		return authorizer.DecisionAllow, "", nil
	}
	h.asked.Add(1)
	h.most.Store(max(h.most.Load(), h.inFlight.Add(1))) // a test waits until all are here
	defer h.inFlight.Add(-1)
	select {
	case <-h.released:
		return authorizer.DecisionNoOpinion, "", nil
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", context.Cause(ctx)
	}
}

// Few requests of a user who asks for many names are reviewed at a time. They delay neither other users nor the user's
// own requests that are known to be allowed. A denial is not reviewed again for a while.
func TestReviewsPerUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := newPermissions((&pipedJudge{}).client(t).AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		server := &holding{released: make(chan struct{})}
		p.server = authorizer.AuthorizerFunc(server.decide)
		asksFor := func(name string) authorizer.Attributes {
			a := asks("mallory", "secrets").(authorizer.AttributesRecord)
			a.Verb, a.Namespace, a.Name = "get", "default", name
			return a
		}
		p.expect(t, asks("mallory", "pods"), true, false)
		const names = 10_000
		var asking sync.WaitGroup
		var busy atomic.Int64
		for i := range names {
			asking.Go(func() {
				allowed, _, err := p.allowed(t.Context(), asksFor(fmt.Sprint("name-", i)))
				if allowed || err == nil {
					t.Errorf("a request that is not reviewed: %v, %v", allowed, err)
				}
				if errors.Is(err, ErrBusy) {
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := server.inFlight.Load(); n != reviewsInFlight {
			t.Errorf("%d reviews of one user are in flight", n)
		}
		began := time.Now()
		p.expect(t, asks("ada", "pods"), true, false)
		p.forget("")
		p.expect(t, asks("mallory", "pods"), true, false)
		if took := time.Since(began); took > 0 {
			t.Errorf("the requests of another user, and one that was allowed, took %v", took)
		}
		asking.Wait()
		// When the first reviews time out, the next ones may begin before their requests are given up.
		if asked, most := server.asked.Load(), server.most.Load(); asked > 2*reviewsInFlight || most > reviewsInFlight ||
			busy.Load() < names-2*reviewsInFlight {
			t.Errorf("%d reviews, at most %d at a time; %d of %d requests are refused", asked, most, busy.Load(), names)
		}
		if n := len(p.inFlight.slots); n != 0 {
			t.Errorf("%d users are remembered", n)
		}
		close(server.released)
		before := server.asked.Load()
		for _, c := range []struct {
			wait  time.Duration
			asked int64
		}{{0, 1}, {unobservedFor - 1, 1}, {1, 2}} {
			time.Sleep(c.wait)
			p.expect(t, asksFor("denied"), false, false)
			if n := server.asked.Load() - before; n != c.asked {
				t.Errorf("%d reviews of one name, want %d", n, c.asked)
			}
		}
	})
}

// An open watch ends without a change of roles, too: a webhook may have decided, and the proxy may not see the roles.
func TestGuardWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		p, err := newPermissions(server.client(t).AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		ctx := guarded(t, p)
		server.allows.Store(false)
		time.Sleep(2 * unobservedFor)
		if synctest.Wait(); ctx.Err() == nil {
			t.Error("it is open")
		}
	})
}
