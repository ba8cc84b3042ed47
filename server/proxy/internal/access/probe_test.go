package access

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// A server that swallows requests is asked nothing but the probe, and nobody waits for it: what it has allowed before
// counts, and nothing else. A review that waits when the probe fails ends. When the server answers a probe, it decides
// again.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		p, err := newPermissions(server.client(t).AuthorizationV1(), server.probed(t))
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		p.expect(t, asks("ada", "pods"), true, false)
		time.Sleep(2*unobservedFor + probeEvery/2) // between two probes
		asked := server.asked.Load()
		server.silent.Store(true)
		time.Sleep(probeEvery) // a probe waits
		before := time.Now()
		p.expect(t, asks("ada", "pods"), true, false)
		if took := time.Since(before); took >= reviewFor {
			t.Errorf("a review that waits when the server falls silent ends after %v", took)
		}
		before = time.Now()
		p.expect(t, asks("ada", "pods"), true, false)
		p.expect(t, asks("ada", "secrets"), false, true)
		p.expect(t, asks("bob", "pods"), false, true)
		p.forget("")
		p.expect(t, asks("ada", "pods"), false, true)
		if took := time.Since(before); took != 0 || server.asked.Load() != asked {
			t.Errorf("decisions about a silent server take %v and %d reviews", took, server.asked.Load()-asked)
		}
		server.allows.Store(false)
		server.silent.Store(false)
		time.Sleep(probeFor + probeEvery)
		p.expect(t, asks("ada", "pods"), false, false)
		server.allows.Store(true)
		p.expect(t, asks("bob", "pods"), true, false)
	})
}

// Errors are answers: while a server sends them, it is asked.
func TestFailingServerIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judge := &pipedJudge{}
		judge.fails.Store(true)
		probe := judge.probed(t)
		time.Sleep(3 * (probeEvery + probeFor))
		if !probe.SilentSince().IsZero() || !probe.UnansweredSince().IsZero() {
			t.Error("a server that answers with errors is silent")
		}
	})
}

// The proxy shows a server that swallows its requests as failing, be a resource followed or not, until it answers.
func TestUnansweredProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judge := &pipedJudge{}
		probe := judge.probed(t)
		time.Sleep(2*probeEvery + probeEvery/2)
		judge.silent.Store(true)
		fell := time.Now()
		time.Sleep(2 * (probeEvery + probeFor))
		if since := probe.UnansweredSince(); since.Before(fell) || since.Sub(fell) > probeEvery {
			t.Errorf("a server that fell silent at %v is unanswered since %v", fell, since)
		}
		judge.silent.Store(false)
		time.Sleep(probeEvery + probeFor)
		if since := probe.UnansweredSince(); !since.IsZero() {
			t.Errorf("a server that answers is unanswered since %v", since)
		}
	})
}

// A server stays silent when a connection to it is given up, by HTTP/2's pings for example: the next one may hang, too.
// It is silent no longer when it refuses connections.
func TestLostConnectionsAreNoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Pointer[error]
		client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: "http://server", QPS: -1,
			Transport: roundTripper(func(q *http.Request) (*http.Response, error) {
				if fails := fails.Load(); fails != nil {
					return nil, *fails
				}
				<-q.Context().Done()
				return nil, q.Context().Err()
			}), ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs}})
		if err != nil {
			t.Fatal(err)
		}
		probe := newProbe(client)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer end()
		running.Go(func() { probe.run(ctx) })
		time.Sleep(probeFor + probeEvery/2)
		for _, c := range []struct {
			fails  error
			silent bool
		}{
			{errors.New("http2: client connection lost"), true},
			{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, false},
			{errors.New("http2: client connection lost"), false},
			{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true},
		} {
			fails.Store(&c.fails)
			time.Sleep(2*probeEvery + probeEvery/2)
			if silent := !probe.SilentSince().IsZero(); silent != c.silent || probe.UnansweredSince().IsZero() {
				t.Errorf("%v: silent %t, unanswered since %v", c.fails, silent, probe.UnansweredSince())
			}
		}
	})
}

// The proxy knows that the server does not know its credentials, be a resource followed or not, until it does. A
// refusal of a moment does not count.
func TestRefusedCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var code atomic.Int64
		code.Store(http.StatusOK)
		client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: "http://server", QPS: -1,
			Transport: roundTripper(func(q *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				w.WriteHeader(int(code.Load()))
				answer := w.Result()
				answer.Request = q
				return answer, nil
			}), ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs}})
		if err != nil {
			t.Fatal(err)
		}
		probe := newProbe(client)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer end()
		running.Go(func() { probe.run(ctx) })
		for _, c := range []struct {
			code    int
			lasts   time.Duration
			refused bool
		}{
			{http.StatusOK, time.Minute, false},
			{http.StatusUnauthorized, refusedAfter - probeEvery, false},
			{http.StatusOK, time.Minute, false},
			{http.StatusUnauthorized, refusedAfter + 2*probeEvery, true},
			{http.StatusInternalServerError, 2 * probeEvery, false},
		} {
			code.Store(int64(c.code))
			time.Sleep(c.lasts)
			if since := probe.RefusedSince(); since.IsZero() == c.refused {
				t.Errorf("%d for %v: refused since %v", c.code, c.lasts, since)
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// A server that is busy answers a probe at once: its priority and fairness exempts the path, by default.
func TestProbesDoNotWaitInQueues(t *testing.T) {
	exempt := bootstrap.SuggestedFlowSchemaProbes.Spec
	if level := exempt.PriorityLevelConfiguration.Name; level != flowcontrolv1.PriorityLevelConfigurationNameExempt {
		t.Fatalf("probes have the level %s", level)
	}
	for _, subjects := range exempt.Rules {
		for _, rule := range subjects.NonResourceRules {
			if slices.Contains(rule.NonResourceURLs, probePath) {
				return
			}
		}
	}
	t.Errorf("%s is not exempt: %v", probePath, exempt.Rules)
}

// A server that has restarted denies what it will allow until it is ready. Open watches wait for that, for
// undecidedFor.
func TestUnreadyServerEndsNoWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hidden  bool          // whether it is ready
		unready time.Duration // how long
		ends    bool
	}{
		"soon ready":         {unready: undecidedFor / 2},
		"not ready":          {unready: time.Hour, ends: true},
		"ready, and denying": {ends: true},
		"hidden":             {hidden: true, unready: undecidedFor / 2, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &pipedJudge{}
				server.allows.Store(true)
				server.hidden.Store(c.hidden)
				p, err := newPermissions(server.client(t).AuthorizationV1(), server.probed(t))
				if err != nil {
					t.Fatal(err)
				}
				defer p.close()
				open := guarded(t, p)
				time.Sleep(probeEvery)
				server.allows.Store(false)
				server.unready.Store(c.unready > 0)
				p.forget("")
				time.Sleep(c.unready)
				server.unready.Store(false)
				server.allows.Store(!c.ends)
				time.Sleep(2 * undecidedFor)
				if ended := open.Err() != nil; ended != c.ends {
					t.Errorf("the watch has ended: %v", ended)
				}
			})
		})
	}
}
