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

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

var _ keepwatch.Source = (*Source)(nil)

// Source reads a ListerWatcher. Its objects are *item.Item. One goroutine may use it, except
// where a method documents otherwise.
type Source struct {
	client    cache.ListerWatcherWithContext
	name      string // of the resource, for people
	streaming bool
	// idleTimeout bounds the silence of the server, and endTimeout the silence within a
	// streaming list.
	idleTimeout, endTimeout time.Duration

	versioned bool             // a list or an event has shown that the server has revisions
	versions  *versionAssigner // nil if the server has revisions
	newest    keepwatch.Revision
	leased    bool                   // the objects are Events
	cut       keepwatch.Revision     // at which a stream left out deletions that are not sent again; 0: none
	token     atomic.Pointer[string] // of versions; nil if the server has revisions
}

const (
	endTimeout = 10 * time.Second
	// stopTimeout is how long a client may take to stop. Then its goroutine is abandoned.
	stopTimeout = time.Second
)

// New returns a source. name names the resource in errors.
func New(lw cache.ListerWatcher, name string) *Source {
	s := &Source{
		client:      cache.ToListerWatcherWithContext(lw),
		name:        name,
		streaming:   features.FeatureGates().Enabled(features.WatchListClient),
		idleTimeout: kube.DefaultIdleTimeout,
		endTimeout:  endTimeout,
	}
	if withoutStreaming(lw) {
		s.streaming = false
		s.assignVersions()
	}
	return s
}

// withoutStreaming reports whether a client says that it has no streaming lists, as client-go's fakes do. The method
// has the name that k8s.io/client-go/util/watchlist asks for, from v0.35 on.
func withoutStreaming(client any) bool {
	c, ok := client.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && c.IsWatchListSemanticsUnSupported()
}

// publishToken makes the assigner's token visible to ResourceVersion.
func (s *Source) publishToken() {
	token := s.versions.token
	s.token.Store(&token)
}

// assignVersions makes the source assign revisions from now on.
func (s *Source) assignVersions() { s.versions = newVersionAssigner(s.newest) }

// ResourceVersion returns the server's resourceVersion of a revision: the same number, or, if
// the server has no revisions, the last one that it sent. Any goroutine may call it.
func (s *Source) ResourceVersion(r keepwatch.Revision) string {
	if token := s.token.Load(); token != nil {
		return *token
	}
	return r.String()
}

// Newest returns the server's newest committed revision.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if s.versions != nil {
		return s.newest, nil
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

// Unchanged reports whether the resource has changed after from up to to, by lists at both; see
// kube.CompareStates. A server without revisions is not asked: its watches may be silent.
func (s *Source) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	return kube.CompareStates(ctx, s.name, from, to, s.ListAt)
}

// list performs one LIST.
func (s *Source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, *keepwatch.Failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return call(ctx, cancel, s, "list", func() (runtime.Object, error) {
		return s.client.ListWithContext(ctx, options)
	}, func(runtime.Object) {})
}

// open opens a WATCH, which ends once cancel is called.
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

// call sends a request through the client, which may ignore contexts. If ctx is done, or the
// server is silent for idleTimeout, call abandons the request, and discards a later response. A
// failure cancels ctx.
func call[T any](ctx context.Context, cancel context.CancelCauseFunc, s *Source, verb string, send func() (T, error),
	discard func(T)) (T, *keepwatch.Failure) {
	type response struct {
		value T
		err   error
	}
	var none T
	op := verb + " " + s.name
	responses := make(chan response, 1)
	go func() {
		value, err := send()
		responses <- response{value, err}
	}()
	timer := time.NewTimer(s.idleTimeout)
	defer timer.Stop()
	kind := keepwatch.Unreachable
	select {
	case r := <-responses:
		if r.err == nil {
			return r.value, nil
		}
		cancel(nil)
		return none, kube.FailureOf(op, r.err)
	case <-ctx.Done():
	case <-timer.C:
		kind = keepwatch.Idle
		cancel(errIdle)
	}
	late := func(r response) {
		if r.err == nil {
			discard(r.value)
		}
	}
	timer.Reset(stopTimeout)
	select {
	case r := <-responses:
		late(r)
	case <-timer.C:
		go func() { late(<-responses) }()
	}
	return none, keepwatch.Failed(kind, "%s: %w", op, context.Cause(ctx))
}
