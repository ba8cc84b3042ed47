package manager

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
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
