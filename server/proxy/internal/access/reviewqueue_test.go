package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Few reviews are in flight, whoever many users cause them. One of a user who has few comes after one of each other
// user, not after all.
func TestReviewsOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := (&pipedJudge{}).client(t)
		probe := newProbe(client.Discovery().RESTClient())
		p, err := newPermissions(client.AuthorizationV1(), probe)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		server := &holding{released: make(chan struct{})}
		p.server = authorizer.AuthorizerFunc(server.decide)
		const users = 3 * reviewsOfAll / reviewsInFlight
		var asking sync.WaitGroup
		ask := func(user, name string) {
			asking.Go(func() {
				a := asks(user, "secrets").(authorizer.AttributesRecord)
				a.Verb, a.Name = "get", name
				if allowed, _, err := p.allowed(t.Context(), a); allowed || err != nil {
					t.Errorf("%s: %v, %v", user, allowed, err)
				}
			})
		}
		for i := range users {
			for name := range 2 * reviewsInFlight {
				ask(fmt.Sprint("user-", i), fmt.Sprint(name))
			}
		}
		synctest.Wait()
		if n, shown := server.inFlight.Load(), probe.ReviewsInFlight(); n != reviewsOfAll || shown != reviewsOfAll {
			t.Errorf("%d reviews are in flight, %d are shown", n, shown)
		}
		close(server.released)
		asking.Wait()
		if most := server.most.Load(); most > reviewsOfAll {
			t.Errorf("%d reviews were in flight", most)
		}
		if n := probe.ReviewsInFlight(); n != 0 || len(probe.reviews.waiting)+len(probe.reviews.next) != 0 {
			t.Errorf("%d reviews are left: %v", n, probe.reviews.waiting)
		}
	})
}

// Flows take turns, and who gives up leaves the queue.
func TestReviewQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newReviewQueue(1)
		if err := q.acquire(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		var order []string
		var waiting sync.WaitGroup
		wait := func(ctx context.Context, flow string) {
			waiting.Go(func() {
				if err := q.acquire(ctx, flow); err == nil {
					order = append(order, flow) // one at a time
				} else if !errors.Is(err, ErrBusy) || ctx.Err() == nil {
					t.Errorf("%s: %v", flow, err)
				}
			})
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		for range 3 {
			wait(t.Context(), "many")
		}
		wait(gone, "gone")
		wait(t.Context(), "few")
		cancel()
		for range 5 {
			synctest.Wait()
			q.release()
		}
		waiting.Wait()
		if got := fmt.Sprint(order); got != "[many few many many]" || q.inFlight() != 0 {
			t.Errorf("%s, %d in flight", got, q.inFlight())
		}
	})
}
