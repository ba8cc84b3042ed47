package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A server that swallows requests is asked nothing but the probe, and nobody waits for it: what it has allowed before counts,
// and nothing else. A review that waits when the probe fails ends. When the server answers a probe, it decides again.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		server.allows.Store(true)
		client := server.client(t)
		probe := newProbe(client.Discovery().RESTClient())
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { probe.run(ctx) })
		p, err := newPermissions(client.AuthorizationV1(), probe)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		p.expect(t, asks("ada", "pods"), true, false)
		time.Sleep(2 * unobservedFor)
		asked := server.asked.Load()
		server.silent.Store(true)
		before := time.Now()
		p.expect(t, asks("ada", "pods"), true, false)
		if took := time.Since(before); took > probeEvery+probeFor {
			t.Errorf("a review that waits when the server falls silent ends after %v", took)
		}
		before = time.Now()
		p.expect(t, asks("ada", "pods"), true, false)
		p.expect(t, asks("ada", "secrets"), false, true)
		p.expect(t, asks("bob", "pods"), false, true)
		p.forget()
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
		cancel()
		running.Wait()
	})
}

// Errors are answers: while a server sends them, it is asked.
func TestFailingServerIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judge := &pipedJudge{}
		judge.fails.Store(true)
		probe := newProbe(judge.client(t).Discovery().RESTClient())
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { probe.run(ctx) })
		time.Sleep(3 * (probeEvery + probeFor))
		if !probe.silentSince().IsZero() {
			t.Error("a server that answers with errors is silent")
		}
		cancel()
		running.Wait()
	})
}

// A read that no remembered decision allows fails at once while the server is silent. A write is sent.
func TestReadsOfASilentServerFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pipedJudge{}
		p, err := New(Config{Server: server.config()})
		if err != nil {
			t.Fatal(err)
		}
		p.forwarder.transport = server.config().Transport
		server.silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.probe.run(ctx) })
		time.Sleep(probeFor + time.Second)
		before := time.Now()
		w := httptest.NewRecorder()
		q := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?resourceVersion=0", nil)
		q.Header.Set("Authorization", "Bearer unknown")
		p.ServeHTTP(w, q)
		if took := time.Since(before); w.Code != http.StatusServiceUnavailable || took != 0 {
			t.Errorf("a read of an unknown caller: %d after %v", w.Code, took)
		}
		writing, giveUp := context.WithTimeout(ctx, time.Minute)
		defer giveUp()
		before = time.Now()
		p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(writing, http.MethodDelete, "/api/v1/namespaces/a/pods/b", nil))
		if took := time.Since(before); took != time.Minute {
			t.Errorf("a write ends after %v", took)
		}
		cancel()
		running.Wait()
	})
}
