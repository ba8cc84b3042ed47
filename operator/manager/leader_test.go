package manager

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/operator"
)

func TestOneReplicaIsElected(t *testing.T) {
	api, lease := newLeases(t), Lease{Namespace: "default", Name: "one"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 2)
	elect := func(ctx context.Context, run func(context.Context) error) {
		ended <- Elected(ctx, api, lease, run)
	}
	work := func(ctx context.Context) error { <-ctx.Done(); return nil }
	leading, stop := context.WithCancel(ctx)
	defer stop()
	go elect(leading, func(ctx context.Context) error { close(first); return work(ctx) })
	<-first
	go elect(ctx, func(ctx context.Context) error { close(second); return work(ctx) })
	select {
	case <-second:
		t.Fatal("two replicas are elected")
	case <-time.After(100 * time.Millisecond):
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	select {
	case <-second:
	case <-time.After(await.Deadline):
		t.Fatal("the second replica is not elected")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLostLeaseEndsTheRun(t *testing.T) {
	down := make(chan struct{})
	cfg := newLeases(t)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return breaking{next, down} })
	const duration = 3 * time.Second
	times := electionTimes{duration, duration * 2 / 3, duration / 10}
	err := elected(t.Context(), cfg, Lease{Namespace: "default", Name: "one"}, times, func(ctx context.Context) error {
		close(down)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, ErrLeadershipLost) {
		t.Errorf("Elected returns %v", err)
	}
}

// The Lease is released after a run that has stopped, and kept after one that has not, or that panics.
func TestLeaseIsKeptWhileWorkContinues(t *testing.T) {
	for name, test := range map[string]struct {
		run      func(context.Context) error
		released bool
	}{
		"stopped":     {func(context.Context) error { return errors.New("failed") }, true},
		"not stopped": {func(context.Context) error { return fmt.Errorf("%w: stuck", operator.ErrNotStopped) }, false},
		"panic":       {func(context.Context) error { panic("at the disco") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			stored := &leases{stored: map[string]*coordinationv1.Lease{}}
			cfg := newServer(t, stored)
			func() {
				defer func() { _ = recover() }()
				_ = Elected(t.Context(), cfg, Lease{Namespace: "default", Name: "one", Identity: "me"}, test.run)
			}()
			stored.mu.Lock()
			defer stored.mu.Unlock()
			for path, lease := range stored.stored {
				if holder := *lease.Spec.HolderIdentity; (holder == "") != test.released {
					t.Errorf("the holder of %s is %q", path, holder)
				}
			}
			if len(stored.stored) != 1 {
				t.Errorf("%d Leases", len(stored.stored))
			}
		})
	}
}

// breaking is a network that fails once down is closed.
type breaking struct {
	http.RoundTripper
	down chan struct{}
}

func (b breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-b.down:
		return nil, errors.New("the network is down")
	default:
		return b.RoundTripper.RoundTrip(r)
	}
}

// A request for the Lease that is not answered costs the leader nothing: the next one is sent on another
// connection.
func TestLeaderOutlivesABrokenConnection(t *testing.T) {
	t.Parallel()
	stored := &leases{stored: map[string]*coordinationv1.Lease{}}
	renewed := make(chan struct{})
	var mu sync.Mutex
	broken, puts := "", 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if r.Method == http.MethodPut && broken == "" {
			broken = r.RemoteAddr
		}
		hangs := r.RemoteAddr == broken
		if r.Method == http.MethodPut && !hangs {
			if puts++; puts == 1 {
				defer close(renewed)
			}
		}
		mu.Unlock()
		if hangs {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		stored.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	cfg := &rest.Config{Host: s.URL, QPS: -1}
	cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	times := electionTimes{lease: 9 * time.Second, renew: 6 * time.Second, retry: 100 * time.Millisecond}
	err := elected(t.Context(), cfg, Lease{Namespace: "default", Name: "one"}, times, func(ctx context.Context) error {
		select {
		case <-renewed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// Answered receives one outcome of several in a row that are alike.
func TestOutcomesOfAnElection(t *testing.T) {
	cfg := newLeases(t)
	answers := []int{403, 403, 403, 500, 500, 0, 0, 403} // the sixth says that there is no Lease, the seventh creates it
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			var code int
			if len(answers) > 0 {
				code, answers = answers[0], answers[1:]
			}
			if code == 0 {
				return next.RoundTrip(r)
			}
			w := httptest.NewRecorder()
			refuse(w, code, metav1.StatusReason(fmt.Sprint(code)))
			return w.Result(), nil
		})
	})
	var outcomes []string
	renewed := make(chan struct{})
	lease := Lease{Namespace: "default", Name: "one", Answered: func(_ bool, err error) {
		if outcomes = append(outcomes, fmt.Sprint(err)); len(outcomes) == 5 {
			close(renewed)
		}
	}}
	times := electionTimes{lease: time.Minute, renew: 40 * time.Second, retry: time.Millisecond}
	err := elected(t.Context(), cfg, lease, times, func(ctx context.Context) error {
		<-renewed
		return nil
	})
	if want := []string{"403", "500", "<nil>", "403", "<nil>"}; err != nil || !slices.Equal(outcomes[:5], want) {
		t.Errorf("%v, the outcomes %q, want %q", err, outcomes, want)
	}
}

// Answered receives one error of several writes in a row, also if reads between them succeed, and none of the release.
func TestOutcomesOfWrites(t *testing.T) {
	cfg := newLeases(t)
	var outcomes []string
	writes, renewed := 0, make(chan struct{})
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				if writes++; writes == 4 {
					close(renewed)
				}
				w := httptest.NewRecorder()
				refuse(w, 500, "500")
				return w.Result(), nil
			}
			return next.RoundTrip(r)
		})
	})
	lease := Lease{Namespace: "default", Name: "one", Answered: func(writes bool, err error) {
		outcomes = append(outcomes, fmt.Sprint(writes, err))
	}}
	times := electionTimes{lease: time.Minute, renew: 40 * time.Second, retry: time.Millisecond}
	err := elected(t.Context(), cfg, lease, times, func(context.Context) error {
		<-renewed
		return nil
	})
	// The Lease is created, not updated, and read.
	if want := []string{"true <nil>", "true 500", "false <nil>"}; err != nil || !slices.Equal(outcomes, want) {
		t.Errorf("%v, the outcomes %q, want %q", err, outcomes, want)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
