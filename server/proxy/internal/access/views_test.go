package access

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/proxy/internal/personal"
	"github.com/keepwatch/keepwatch/store"
)

// unbound is a cluster in which nobody is bound.
type unbound map[string]keepwatch.UID

func (u unbound) Namespaces() (map[string]keepwatch.UID, error) { return u, nil }
func (unbound) DecidedFor() time.Duration                       { return knownFor }
func (unbound) Roles() (roles *personal.Roles, seen bool) {
	return &personal.Roles{Bindings: store.New(store.Options{}), ClusterBindings: store.New(store.Options{}),
		ClusterRoles: store.New(store.Options{})}, true
}

// A client that gives up before all namespaces are decided finds at each of its tries what was decided before, and is
// answered at one of them. The server is asked about each namespace and each verb once.
func TestViewsOfClientsThatGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 1000
		var asked atomic.Int64
		p, _ := queued(t, func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked.Add(1)
			time.Sleep(100 * time.Millisecond)
			if a.GetNamespace() == "n007" || a.GetNamespace() == "n990" {
				return authorizer.DecisionAllow, "a webhook", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
		cluster := unbound{}
		for i := range namespaces {
			cluster[fmt.Sprintf("n%03d", i)] = keepwatch.UID(fmt.Sprint(i))
		}
		views := personal.New(cluster, Reviews{p, &authorizers{permissions: p}}, metrics.NewKubeRegistry(), personal.Settled)
		pods := personal.Subject{User: &user.DefaultInfo{Name: "ada"}, Verb: "list",
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
		read := func() (has int, err error) {
			ctx, giveUp := context.WithTimeout(t.Context(), 10*time.Second)
			defer giveUp()
			r, err := views.Read(pods)
			if err != nil {
				t.Fatal(err)
			}
			defer r.End()
			_, err = r.Decide(ctx)
			has, _ = r.Count()
			return has, err
		}
		tries := 1
		has, err := read()
		for ; err != nil && asked.Load() < 4*namespaces; has, err = read() {
			tries++
			time.Sleep(time.Second)
		}
		if n := asked.Load(); err != nil || has != 2 || tries == 1 || n > 2*(namespaces+10) {
			t.Errorf("after %d tries and %d reviews: %d namespaces, %v", tries, n, has, err)
		}
	})
}

// What the server has denied counts for a personal view as long as what it has allowed, while nothing changes. If the
// server may have started since, or if changes are not seen, it counts for ten seconds, as for all others.
func TestDenialsOfViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		p, err := newPermissions(server.client(t).AuthorizationV1(), server.probed(t))
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		p.observe(true)
		time.Sleep(2 * settling)
		views := Reviews{permissions: p}
		asks := asks("ada", "pods")
		decide := func(want bool) (reviews int64) {
			t.Helper()
			before := server.asked.Load()
			if allowed, err := views.Decide(t.Context(), asks, true); err != nil || allowed != want {
				t.Errorf("%v, %v", allowed, err)
			}
			return server.asked.Load() - before
		}
		decide(false)
		if time.Sleep(knownFor - 2*time.Second); decide(false) != 0 {
			t.Error("a denial counts for less than two minutes")
		}
		if time.Sleep(4 * time.Second); decide(false) != 1 {
			t.Error("a denial counts for more than two minutes")
		}
		server.allows.Store(true)
		if time.Sleep(unobservedFor + time.Second); decide(false) != 0 {
			t.Error("the server was asked again")
		}
		server.unready.Store(true)
		time.Sleep(probeEvery)
		server.unready.Store(false)
		if time.Sleep(probeEvery); decide(true) != 1 {
			t.Error("the denial of a server that may have started since counts")
		}
		server.allows.Store(false)
		p.forget("")
		time.Sleep(2 * settling)
		decide(false)
		p.observe(false)
		if time.Sleep(unobservedFor - time.Second); decide(false) != 0 {
			t.Error("a denial counts for less than ten seconds while changes are not seen")
		}
		if time.Sleep(2 * time.Second); decide(false) != 1 {
			t.Error("a denial counts for more than ten seconds while changes are not seen")
		}
		p.observe(true)
		time.Sleep(2 * settling)
		p.expect(t, asks, false, false)
		time.Sleep(unobservedFor + time.Second)
		before := server.asked.Load()
		if p.expect(t, asks, false, false); server.asked.Load() != before+1 {
			t.Error("the denial of a request counts for more than ten seconds")
		}
	})
}
