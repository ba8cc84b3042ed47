package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A watch ends when the server no longer knows who opened it, although it would allow the request, and when the
// credentials expire. It goes on while the server is unreachable, or starts.
func TestGuardsFollowTheIdentity(t *testing.T) {
	unavailable := errors.New("no answer")
	for name, c := range map[string]struct {
		expires time.Duration
		again   func(since time.Duration) error
		unready bool
		ends    time.Duration // at the latest; zero if it does not end for this reason
	}{
		"known":       {again: func(time.Duration) error { return nil }},
		"deleted":     {again: func(time.Duration) error { return errUnknown }, ends: 2 * unobservedFor},
		"unreachable": {again: func(time.Duration) error { return unavailable }, ends: 3 * unobservedFor},
		"reachable again": {again: func(d time.Duration) error {
			return after(d, unobservedFor+undecidedFor/2, unavailable)
		}},
		"the server starts": {again: func(d time.Duration) error {
			return after(d, unobservedFor+undecidedFor/2, errUnknown)
		}, unready: true},
		"expires": {expires: 5 * time.Second, again: func(time.Duration) error { return nil },
			ends: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &pipedJudge{}
				server.allows.Store(true)
				p, err := newPermissions(server.client(t).AuthorizationV1(), server.probed(t))
				if err != nil {
					t.Fatal(err)
				}
				defer p.close()
				time.Sleep(probeEvery) // it was ready
				server.unready.Store(c.unready)
				began := time.Now()
				by := &Caller{Info: &user.DefaultInfo{Name: "ada"}, again: func(context.Context) (user.Info, error) {
					return &user.DefaultInfo{Name: "ada"}, c.again(time.Since(began))
				}}
				if c.expires > 0 {
					by.expires = began.Add(c.expires)
				}
				a := asks("ada", "pods")
				_, number, err := p.allowed(t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := p.guard(t.Context(), by, a, number)
				defer end()
				if c.ends == 0 {
					time.Sleep(2 * unobservedFor)
					server.unready.Store(false)
					time.Sleep(10 * unobservedFor)
					if ctx.Err() != nil {
						t.Error("it has ended")
					}
					return
				}
				time.Sleep(c.ends)
				synctest.Wait()
				if ctx.Err() == nil {
					t.Errorf("it is open after %v", c.ends)
				}
			})
		})
	}
}

// after returns an error until some time has passed.
func after(passed, until time.Duration, err error) error {
	if passed < until {
		return err
	}
	return nil
}

// When changes of roles are no longer seen, an open watch is asked about as often as if they never had been.
func TestGuardsOfUnseenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		p, err := newPermissions(server.client(t).AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		p.observe(true)
		ctx := guarded(t, p)
		time.Sleep(knownFor + knownFor/2)
		p.observe(false)
		server.allows.Store(false)
		time.Sleep(2*unobservedFor + settlingFor)
		if synctest.Wait(); ctx.Err() == nil {
			t.Error("it is open")
		}
	})
}

// Whatever timeout its client asks for, no watch is open for much more than an hour.
func TestGuardsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		p, err := newPermissions(server.client(t).AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		ctx := guarded(t, p)
		time.Sleep(longestOpen - time.Second)
		if ctx.Err() != nil {
			t.Error("it has ended early")
		}
		time.Sleep(longestOpen/10 + time.Second)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it is open")
		}
	})
}

// When the server names other groups for a token, the request is decided for them.
func TestGuardsFollowTheGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		p, err := newPermissions(server.client(t).AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		var group atomic.Value
		group.Store("admins")
		by := &Caller{again: func(context.Context) (user.Info, error) {
			return &user.DefaultInfo{Name: "ada", Groups: []string{group.Load().(string)}}, nil
		}}
		by.Info, _ = by.again(t.Context())
		a := asks("ada", "pods").(authorizer.AttributesRecord)
		a.User = by.Info
		_, number, err := p.allowed(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := p.guard(t.Context(), by, a, number)
		defer end()
		p.made.add(describe(a), remembered{true, time.Now().Add(24 * time.Hour), number, 0}) // the admins are for ever
		server.allows.Store(false)
		time.Sleep(5 * unobservedFor)
		if ctx.Err() != nil {
			t.Error("it has ended")
		}
		group.Store("others")
		time.Sleep(2 * unobservedFor)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it is open")
		}
	})
}

// A watch of a personal view ends when its caller is another user: one with other groups.
func TestViewsEndWithTheGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := newPermissions((&pipedJudge{}).client(t).AuthorizationV1(), (&pipedJudge{}).probed(t))
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		var group atomic.Value
		group.Store("devs")
		by := &Caller{again: func(context.Context) (user.Info, error) {
			return &user.DefaultInfo{Name: "ada", Groups: []string{group.Load().(string)}}, nil
		}}
		by.Info, _ = by.again(t.Context())
		ctx, end := p.guardIdentity(t.Context(), by)
		defer end()
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Fatal("it has ended")
		}
		group.Store("others")
		time.Sleep(2 * unobservedFor)
		if ctx.Err() == nil {
			t.Error("it is open")
		}
	})
}

func TestExpiry(t *testing.T) {
	of := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for token, want := range map[string]time.Time{
		of(`{"exp":1800000000,"sub":"x"}`): time.Unix(1800000000, 0).Add(expiryLeeway),
		of(`{"exp":1800000000.7}`):         time.Unix(1800000000, 0).Add(expiryLeeway),
		of(`{"sub":"x"}`):                  {},
		of(`{"exp":"soon"}`):               {},
		of(`[]`):                           {},
		"a.b.c":                            {},
		"opaque":                           {},
		"":                                 {},
	} {
		if got := expiry(token); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", token, got, want)
		}
	}
}

// A change in a namespace concerns that namespace alone, and a change of the cluster all.
func TestChangesOfANamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		p, err := newPermissions(server.client(t).AuthorizationV1(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		p.observe(true)
		time.Sleep(settling)
		const namespaces, each = 3, 20
		for i := range namespaces * each {
			a := asks(fmt.Sprint("user-", i), "pods").(authorizer.AttributesRecord)
			a.Namespace = fmt.Sprint("ns-", i%namespaces)
			_, number, err := p.allowed(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			_, end := p.guard(t.Context(), knownCaller(a), a, number)
			defer end()
		}
		for _, c := range []struct {
			changed string
			want    int64 // reviews, at once and once more
		}{{"ns-1", 2 * each}, {"elsewhere", 0}, {"", 2 * each * namespaces}} {
			before := server.asked.Load()
			p.forget(c.changed)
			time.Sleep(settling - time.Second)
			if n := server.asked.Load() - before; n != c.want {
				t.Errorf("%q: %d reviews, want %d", c.changed, n, c.want)
			}
			time.Sleep(2*settling + time.Second)
		}
		recorded := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.namespaces)
		}
		if n := recorded(); n != 2 {
			t.Errorf("%d namespaces are recorded", n)
		}
		time.Sleep(outageFor)
		if n := recorded(); n != 0 {
			t.Errorf("%d namespaces are recorded after all decisions from before their changes", n)
		}
	})
}

// Decisions from before a change in their namespace do not count while the server is away; others do.
func TestOutageAfterAChange(t *testing.T) {
	in := func(namespace string) authorizer.Attributes {
		a := asks("ada", "pods").(authorizer.AttributesRecord)
		a.Namespace = namespace
		return a
	}
	server, p := newJudge(t)
	server.allows.Store(true)
	p.expect(t, in("a"), true, false)
	p.expect(t, in("b"), true, false)
	server.fails.Store(true)
	p.forget("a")
	p.expect(t, in("a"), false, true)
	p.expect(t, in("b"), true, false)
	p.forget("")
	p.expect(t, in("b"), false, true)
}
