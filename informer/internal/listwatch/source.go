package listwatch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

var _ keepwatch.Source = (*Source)(nil)

// Source reads a ListerWatcher. Its objects are *item.Item.
type Source struct {
	client    cache.ListerWatcherWithContext
	name      string // of the resource, for people
	streaming bool
	// patience bounds how long the other side may be silent, and endTimeout how long
	// a streaming list may be that was accepted.
	patience, endTimeout time.Duration

	proven bool // a list or an event has shown that the server numbers
	ledger *ledger
	given  keepwatch.Revision // the greatest revision that was handed out
	token  atomic.Pointer[string]
}

const (
	pageSize   = 500
	endTimeout = 10 * time.Second
	// retreat is how long a client that was told to stop may take before it is left
	// to itself.
	retreat = time.Second
)

// New makes a source. name says for people what is read.
func New(lw cache.ListerWatcher, name string) *Source {
	s := &Source{
		client:     cache.ToListerWatcherWithContext(lw),
		name:       name,
		streaming:  features.FeatureGates().Enabled(features.WatchListClient),
		patience:   kube.DefaultIdleTimeout,
		endTimeout: endTimeout,
	}
	if watchlist.DoesClientNotSupportWatchListSemantics(lw) {
		s.streaming = false
		s.keepLedger()
	}
	return s
}

// publish makes the ledger's token that of ResourceVersion.
func (s *Source) publish() {
	token := s.ledger.token
	s.token.Store(&token)
}

// keepLedger makes the source number from now on.
func (s *Source) keepLedger() { s.ledger = newLedger(s.given) }

// ResourceVersion is what the server calls a revision: the same number, or of a
// server that does not number, what it said last. It may be called at any time.
func (s *Source) ResourceVersion(r keepwatch.Revision) string {
	if token := s.token.Load(); token != nil {
		return *token
	}
	return r.String()
}

// Newest asks for the newest committed revision.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if s.ledger != nil {
		return s.given, nil
	}
	list, failure := s.list(ctx, metav1.ListOptions{Limit: 1})
	if failure != nil {
		return 0, failure
	}
	revision, failure := s.revisionOf(list)
	if failure != nil {
		return 0, failure
	}
	return revision, nil
}

// list performs one LIST.
func (s *Source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, *keepwatch.Failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return call(ctx, cancel, s, "list", func() (runtime.Object, error) {
		return s.client.ListWithContext(ctx, options)
	}, func(runtime.Object) {})
}

// open opens a WATCH, which lives until cancel is called.
func (s *Source) open(ctx context.Context, options metav1.ListOptions) (*stream, *keepwatch.Failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	opened, failure := call(ctx, cancel, s, "watch", func() (watch.Interface, error) {
		return s.client.WatchWithContext(ctx, options)
	}, watch.Interface.Stop)
	if failure != nil {
		return nil, failure
	}
	return &stream{source: s, watch: opened, cancel: cancel, done: ctx.Done()}, nil
}

var errIdle = errors.New("no answer")

// call asks the client, which may know nothing of contexts: then it is left behind
// when ctx is done, or when the other side was silent for too long, and the answer
// that comes after that is dropped. A failure ends ctx.
func call[T any](ctx context.Context, cancel context.CancelCauseFunc, s *Source, verb string, ask func() (T, error), drop func(T)) (T, *keepwatch.Failure) {
	type answer struct {
		value T
		err   error
	}
	var none T
	op := verb + " " + s.name
	answers := make(chan answer, 1)
	go func() {
		value, err := ask()
		answers <- answer{value, err}
	}()
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	kind := keepwatch.Unreachable
	select {
	case a := <-answers:
		if a.err == nil {
			return a.value, nil
		}
		cancel(nil)
		return none, kube.FailureOf(op, a.err)
	case <-ctx.Done():
	case <-timer.C:
		kind = keepwatch.Idle
		cancel(errIdle)
	}
	forget := func(a answer) {
		if a.err == nil {
			drop(a.value)
		}
	}
	timer.Reset(retreat)
	select {
	case a := <-answers:
		forget(a)
	case <-timer.C:
		go func() { forget(<-answers) }()
	}
	return none, keepwatch.Failed(kind, "%s: %w", op, context.Cause(ctx))
}
