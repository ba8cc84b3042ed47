package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// slow is a server that needs a time for each review. It denies what revoked names, and answers the first reviews 429.
type slow struct {
	latency time.Duration
	revoked string // a user
	busy    int64  // how many are answered 429
	asked   atomic.Int64
}

func (s *slow) decide(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := s.asked.Add(1)
	select {
	case <-time.After(s.latency):
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", ctx.Err()
	}
	switch {
	case asked <= s.busy:
		return authorizer.DecisionNoOpinion, "", apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "create",
			schema.GroupResource{}, "", "", 1, true)
	case a.GetUser().GetName() == s.revoked:
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, roleReason, nil
}

// queued are permissions whose reviews wait in a probe's queue, and a server that decides them.
func queued(t *testing.T, server authorizer.AuthorizerFunc) (*permissions, *Probe) {
	t.Helper()
	client := (&pipedJudge{}).client(t)
	probe := newProbe(client.Discovery().RESTClient())
	p, err := newPermissions(client.AuthorizationV1(), probe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	p.server = server
	p.observe(true)
	time.Sleep(settling)
	synctest.Wait()
	return p, probe
}

// watches opens a watch of each of many users. It returns the contexts, which end with ctx.
func (p *permissions) watches(ctx context.Context, n int, running *sync.WaitGroup) []context.Context {
	p.mu.Lock()
	number := p.number
	p.mu.Unlock()
	var all []context.Context
	for i := range n {
		a := asks(fmt.Sprint("user-", i), "secrets")
		guarded, end := p.guard(ctx, knownCaller(a), a, number)
		running.Go(func() { <-guarded.Done(); end() })
		all = append(all, guarded)
	}
	return all
}

// Watches that are allowed do not end while their reviews wait for those of other watches, for longer than a review may
// take, also if the server answers some of them 429. One that is no longer allowed ends.
func TestWatchesWaitForReviews(t *testing.T) {
	t.Parallel()
	const users = 15 * reviewsOfAll // a second for each hundred
	for name, server := range map[string]*slow{
		"slow":     {latency: time.Second},
		"and busy": {latency: time.Second, busy: users - reviewsOfAll},
		"revoked":  {latency: time.Second, revoked: "user-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, _ := queued(t, server.decide)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				watches := p.watches(ctx, users, &running)
				synctest.Wait()
				p.forget("")
				time.Sleep(knownFor / 2)
				for i, watch := range watches {
					if is := fmt.Sprint("user-", i) == server.revoked; (watch.Err() != nil) != is {
						t.Fatalf("watch %d has ended: %v", i, watch.Err() != nil)
					}
				}
				if n := server.asked.Load(); n < users {
					t.Errorf("%d reviews", n)
				}
				cancel()
				running.Wait()
				time.Sleep(time.Minute) // reviews that nobody waits for
			})
		})
	}
}

// What the proxy's queue keeps from the server ends, too, when the server decides nothing of it for long.
func TestWatchesDoNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, probe := queued(t, (&slow{}).decide)
		for range reviewsOfAll { // for ever
			if err := probe.reviews.acquire(t.Context(), "others"); err != nil {
				t.Fatal(err)
			}
		}
		var running sync.WaitGroup
		watch := p.watches(t.Context(), 1, &running)[0]
		synctest.Wait()
		p.forget("")
		changed := time.Now()
		<-watch.Done()
		if took := time.Since(changed); took < outageFor || took > outageFor+2*undecidedFor {
			t.Errorf("it has ended after %v", took)
		}
		running.Wait()
	})
}

// A token is reviewed for an open watch after a wait that is longer than a review may take.
func TestIdentitiesWaitForReviews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, probe := queued(t, (&slow{}).decide)
		_, tokens := newCountingReviews(t)
		tokens.probe = probe
		for range reviewsOfAll {
			if err := probe.reviews.acquire(t.Context(), "others"); err != nil {
				t.Fatal(err)
			}
		}
		asked := &openRequest{permissions: p, attributes: asks("ada", "pods"), caller: &Caller{again: func(
			ctx context.Context) (user.Info, error) {
			return tokens.again(ctx, "a token", "192.0.2.1")
		}}}
		var asking sync.WaitGroup
		asking.Go(func() {
			if !asked.holds(t.Context(), asked.identified) {
				t.Error("the watch ends")
			}
		})
		time.Sleep(reviewFor / 2)
		asking.Go(func() {
			began := time.Now()
			if _, err := tokens.user(t.Context(), "a token", "192.0.2.1"); !errors.Is(err, ErrBusy) ||
				time.Since(began) != reviewFor {
				t.Errorf("a request: %v after %v", err, time.Since(began))
			}
		})
		time.Sleep(3 * reviewFor)
		for range reviewsOfAll {
			probe.reviews.release()
		}
		asking.Wait()
	})
}

// While a webhook hangs in all reviews that may be in flight, a request waits as long as a review at most. It is
// allowed if the server has allowed it since the last change of roles, also when that is to be reviewed again.
func TestRequestsWhileReviewsHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, probe := queued(t, (&slow{}).decide)
		p.expect(t, asks("ada", "pods"), true, false)
		for range reviewsOfAll {
			if err := probe.reviews.acquire(t.Context(), "hanging"); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(about string, a authorizer.Attributes, want error, after time.Duration) {
			t.Helper()
			began := time.Now()
			if allowed, _, err := p.allowed(t.Context(), a); allowed != (want == nil) || !errors.Is(err, want) ||
				time.Since(began) != after {
				t.Errorf("%s: %v, %v after %v", about, allowed, err, time.Since(began))
			}
		}
		expect("known", asks("ada", "pods"), nil, 0)
		expect("new", asks("bob", "pods"), ErrBusy, reviewFor)
		time.Sleep(knownFor)
		expect("known, to be reviewed again", asks("ada", "pods"), nil, reviewFor)
		p.forget("")
		expect("known from before a change", asks("ada", "pods"), ErrBusy, reviewFor)
		probe.reviews.release()
		expect("after the change", asks("ada", "pods"), nil, 0)
	})
}

// Who waits in the queue when the server becomes silent does not wait longer, and decides as in an outage.
func TestSilenceEndsTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, probe := queued(t, (&slow{}).decide)
		for range reviewsOfAll {
			if err := probe.reviews.acquire(t.Context(), "others"); err != nil {
				t.Fatal(err)
			}
		}
		open, waited := patient(t.Context())
		var asking sync.WaitGroup
		asking.Go(func() {
			if _, err := p.stillAllowed(open, asks("ada", "pods")); !isOutage(err) || waited.total != time.Minute {
				t.Errorf("%v after %v in the queue", err, waited.total)
			}
		})
		time.Sleep(time.Minute)
		last := probe.last.Load()
		probe.last.Store(&probed{answering: last.answering, end: last.end, silent: time.Now()})
		last.end()
		asking.Wait()
	})
}

// Reviews that are given up are not admitted, and leave nothing when others are.
func TestReviewsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newReviewQueue(1)
		if err := q.acquire(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for i := range 1000 {
			waiting.Go(func() {
				if err := q.acquire(gone, fmt.Sprint("flow-", i%10)); !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		waiting.Go(func() {
			if err := q.acquire(t.Context(), "flow-5"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		q.release()
		waiting.Wait()
		if n := q.inFlight(); n != 1 {
			t.Errorf("%d reviews are in flight", n)
		}
		q.release()
		if q.inFlight() != 0 || len(q.waiting)+len(q.next) != 0 {
			t.Errorf("%d in flight, %v, %v", q.inFlight(), q.waiting, q.next)
		}
	})
}
