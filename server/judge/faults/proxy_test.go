package faults

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) { os.Exit(await.Tests(m)) }

func TestForwardsUnchanged(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		cluster, upstream := newCluster(t, 2)
		close(cluster.events)
		p := New(t, upstream, Plan{HTTP1: http1})
		c := newClient(t, p, http1)

		if code, body, err := c.read(t, pods); code != 200 || body != cluster.list || err != nil {
			t.Errorf("list: %d, %d bytes, %v", code, len(body), err)
		}
		if code, body, err := c.read(t, watchPods); code != 200 || body != added(1)+added(2) || err != nil {
			t.Errorf("watch: %d, %q, %v", code, body, err)
		}
		if p.Count(List, "pods") != 1 || p.Count(Watch, "pods") != 1 || p.Count(Any, Any) != 2 {
			t.Errorf("counts:\n%v", p.Transcript())
		}
		got := waitForEntries(t, p, func(entries []Entry) bool { return entries[1].End > 0 })[1]
		if got.Bytes != int64(len(added(1)+added(2))) || got.Frames != 2 || got.Revision != "7" || got.Code != 200 ||
			len(got.Faults) != 0 {
			t.Errorf("transcript: %v", got)
		}
	})
}

func TestAnswers(t *testing.T) {
	_, upstream := newCluster(t, 0)
	p := New(t, upstream, Plan{})
	c := newClient(t, p, false)
	p.Next(List, "pods", Answer(TooManyRequests), Event(Expired), Garbage)

	response, err := c.get(t.Context(), pods)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "1" ||
		status.Reason != metav1.StatusReasonTooManyRequests {
		t.Errorf("got %d %v %v", response.StatusCode, response.Header, status)
	}
	if code, body, err := c.read(t, pods); code != 410 || !strings.Contains(body, `"reason":"Expired"`) || err != nil {
		t.Errorf("got %d %q, %v; want 410 Expired", code, body, err)
	}
	if code, body, err := c.read(t, pods); code != 200 || body != "garbage" || err != nil {
		t.Errorf("got %d %q, %v; want garbage", code, body, err)
	}
	if code, _, err := c.read(t, pods); code != 200 || err != nil {
		t.Errorf("after all faults: %d, %v", code, err)
	}
}

func TestListBreaksOff(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		for _, fault := range []Fault{Cut, Tear, End, Reset} {
			cluster, upstream := newCluster(t, 0)
			p := New(t, upstream, Plan{HTTP1: http1})
			p.Next(List, "pods", fault.After(40<<10))
			_, body, err := newClient(t, p, http1).read(t, pods)
			if err == nil || fault != Reset && body != cluster.list[:40<<10] {
				t.Errorf("%s: got %d bytes, %v", fault, len(body), err)
			}
		}
	})
}

// TestCloseEndsWhatHangs relies on TestMain to find goroutines that remain.
func TestCloseEndsWhatHangs(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		_, upstream := newCluster(t, 0)
		p := New(t, upstream, Plan{HTTP1: http1})
		p.Next(Watch, Any, None, Stall, HalfOpen)
		var clients sync.WaitGroup
		defer clients.Wait()
		for range 3 {
			c := newClient(t, p, http1)
			clients.Go(func() {
				if _, body, err := c.read(t, watchPods); err == nil {
					t.Errorf("the watch ended by itself: %q", body)
				}
			})
		}
		waitForEntries(t, p, func(e []Entry) bool {
			return len(e) == 3 && len(e[0].Faults)+len(e[1].Faults)+len(e[2].Faults) == 2
		})
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestDownRefusesAndUpComesBack(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		_, upstream := newCluster(t, 1)
		p := New(t, upstream, Plan{HTTP1: http1})
		c := newClient(t, p, http1)
		response, err := c.get(t.Context(), watchPods)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := p.Down(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Error("the open watch ended without an error, want a reset")
		}
		c.wantReset(t)
		if _, _, err := c.read(t, pods); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("while down: %v, want refused", err)
		}
		if err := p.Up(); err != nil {
			t.Fatal(err)
		}
		if code, _, err := c.read(t, pods); code != 200 || err != nil {
			t.Errorf("after it: %d, %v", code, err)
		}
	})
}

func TestUpstreamAway(t *testing.T) {
	_, upstream := newCluster(t, 0)
	upstream.Host = "https://127.0.0.1:1"
	p := New(t, upstream, Plan{})
	if code, _, err := newClient(t, p, false).read(t, pods); err == nil {
		t.Errorf("got %d, want the request broken off", code)
	}
	if got := p.Transcript()[0].Err; !strings.Contains(got, "refused") {
		t.Errorf("transcript says %q", got)
	}
}

// TestClientGoVerifiesProxy checks the configuration as client-go uses it.
func TestClientGoVerifiesProxy(t *testing.T) {
	_, upstream := newCluster(t, 0)
	p := New(t, upstream, Plan{})
	tlsConfig, err := rest.TLSConfigFor(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.Config().Host, "https://"), tlsConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if p.Config().BearerToken != "secret" {
		t.Error("the token is lost")
	}
	tlsConfig.RootCAs = x509.NewCertPool()
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(p.Config().Host, "https://"), tlsConfig); err == nil {
		conn.Close()
		t.Error("the certificate is valid for any client")
	}
}
