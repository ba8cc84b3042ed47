package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/internal/freshread"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/kube"
)

var _ watchcache.Source = (*Source)(nil)

const (
	// confirmingWatch is the timeout of a watch that is opened to learn that a quiet resource has not changed.
	// kube-apiserver sends a bookmark two seconds before the timeout of a watch, and later ones only each
	// minute. With a timeout of two seconds it sends none.
	confirmingWatch = 3 * time.Second
	// eventDelay is how long an event may take that is on its way when a newer revision is known.
	eventDelay = 50 * time.Millisecond
)

// Source is one resource of the server behind the proxy, as a watch cache reads it.
type Source struct {
	*kube.Source
	reads    *freshread.Reads
	gone     func(error)  // called when the server no longer has the resource, or forbids it
	relisted func()       // called after each list but the first
	listed   atomic.Int64 // see listedBytes
	complete atomic.Bool  // the first list is

	mu      sync.Mutex
	wanted  keepwatch.Revision // the newest revision that the cache must reach
	open    *openWatch
	failing time.Time // since when the server does not answer; zero while it does
	// unverified is true after the server did not answer: it may have been restored from a backup. kube-apiserver accepts
	// a watch from a revision above its newest one, and sends nothing (kubernetes #107457).
	unverified bool
	// confirming is true if the next watch is opened to confirm that nothing has changed.
	confirming bool
}

// New returns a source. Its objects are the cache's, of the server's text. gone is called when the server no longer has
// the resource, or forbids it, and relisted after each list but the first.
func New(server *rest.Config, definitions *kube.Definitions, resource schema.GroupVersionResource,
	f *verbatim.Format,
	cache *watchcache.Cache, gone func(error), relisted func()) (*Source, error) {
	s := &Source{reads: freshread.New(), gone: gone, relisted: relisted}
	var err error
	s.Source, err = kube.New(server, kube.Options{
		Resource: resource, WatchTimeout: s.watchTimeout, Protobuf: f.Encoding.Protobuf(), DropManagedFields: f.Slim,
		Definitions: definitions,
		Decode: func(raw kube.Raw) (keepwatch.Object, error) {
			s.listed.Add(int64(len(raw.Body)))
			object, text, err := f.Object(raw)
			if err != nil {
				return nil, err
			}
			return cache.NewObject(object, text), nil
		},
	})
	return s, err
}

// Seed fails: a Kubernetes API has no list of its history.
func (s *Source) Seed(context.Context, keepwatch.Target) error {
	return errors.New("a Kubernetes API does not list its history")
}

// Newest returns the newest revision of the resource's storage, by a list that began after the call and is
// shared by all that wait for one. It fails if that is below what the server has delivered before: the cache has states
// that the server does not have now. If the resource is quiet, the open watch is replaced by one whose end is
// near: the server sends a bookmark before the end.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	delivered := s.delivered()
	newest, err := s.reads.Do(ctx, s.Source.Newest)
	if err == nil && newest < delivered {
		err = behind(newest, delivered)
	}
	var failure *keepwatch.Failure
	if err != nil && !errors.As(err, &failure) {
		err = keepwatch.Failed(keepwatch.Ended, "read the newest revision: %w", err)
	}
	if ctx.Err() != nil { // also if the read succeeded: the client is gone
		return newest, err
	}
	if s.report(ctx, err) != nil {
		return 0, err
	}
	s.confirm(newest)
	return newest, nil
}

// delivered returns the revision up to which the open watch has delivered.
func (s *Source) delivered() keepwatch.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return 0
	}
	return s.open.at
}

// watchTimeout is that of the next watch; zero is the default.
func (s *Source) watchTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirming {
		return confirmingWatch
	}
	return 0
}

// List reports a server that does not have the resource. It leaves the resource to the server if an object cannot be
// read: the server's own answers have the object.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if req.Continue == "" {
		s.listed.Store(0)
	}
	page, err := s.Source.List(ctx, req)
	if err == nil && len(page.Skipped) > 0 {
		s.gone(page.Skipped[0])
		page, err = keepwatch.Page{}, page.Skipped[0]
	}
	if err == nil && page.Continue == "" {
		s.endList()
	}
	return page, s.report(ctx, err)
}

// StreamList reports as List does, and returns a watch that confirm can replace.
func (s *Source) StreamList(ctx context.Context, notOlderThan keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	s.setConfirming(0)
	s.listed.Store(0)
	revision, watch, err := s.Source.StreamList(ctx, notOlderThan, emit)
	if s.report(ctx, err) != nil {
		return 0, nil, err
	}
	s.endList()
	return revision, s.opened(ctx, revision, watch), nil
}

func (s *Source) endList() {
	if s.complete.Swap(true) {
		s.relisted()
	}
}

// Watch opens a watch that confirm can replace.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	watch, err := s.connect(ctx, from)
	if err != nil {
		return nil, err
	}
	return s.opened(ctx, from, watch), nil
}

// connect opens a watch at the server: a confirming one if the cache must reach a newer revision. After an outage it
// first verifies that the server has the revision.
func (s *Source) connect(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	if err := s.verify(ctx, from); err != nil {
		return nil, s.report(ctx, err)
	}
	s.setConfirming(from)
	watch, err := s.Source.Watch(ctx, from)
	return watch, s.report(ctx, err)
}

// verify returns an error if the server is unverified, and its newest revision is below the given one or unknown.
func (s *Source) verify(ctx context.Context, revision keepwatch.Revision) error {
	s.mu.Lock()
	unverified := s.unverified
	s.mu.Unlock()
	if !unverified {
		return nil
	}
	newest, err := s.reads.Do(ctx, s.Source.Newest)
	if err == nil && newest < revision {
		err = behind(newest, revision)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unverified = false
	return nil
}

// behind is the failure of a server whose newest revision is below one that it has sent.
func behind(newest, sent keepwatch.Revision) error {
	return keepwatch.Failed(keepwatch.StaleReplica,
		"the server's newest revision is %d, and it has sent events up to %d: it is behind, or was restored from a backup",
		newest, sent)
}

// setConfirming decides the timeout of a watch from a revision, zero for a list.
func (s *Source) setConfirming(from keepwatch.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirming = from > 0 && from < s.wanted
}

// opened records the watch that confirm replaces.
func (s *Source) opened(ctx context.Context, from keepwatch.Revision, watch keepwatch.Watch) *openWatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = &openWatch{source: s, ctx: ctx, at: from, inner: watch, confirming: s.confirming}
	return s.open
}

// report records whether the server answers, and passes the error on. If it says that the server does not have
// the resource, or refuses it to the proxy, the resource is no longer answered from a cache. An error of a request that
// the proxy itself has ended says nothing about the server.
func (s *Source) report(ctx context.Context, err error) error {
	var failure *keepwatch.Failure
	if err != nil && (ctx.Err() != nil || !errors.As(err, &failure)) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (failure.Kind == keepwatch.StaleReplica || failure.Kind == keepwatch.Rewound) {
		s.wanted = 0 // the server may never reach it
	}
	switch {
	case err == nil:
		s.failing = time.Time{}
	case failure.Kind == keepwatch.Absent, failure.Kind == keepwatch.Forbidden:
		s.gone(failure)
	case !isUnanswered(failure.Kind):
		s.failing = time.Time{}
	default:
		s.unverified = true
		if s.failing.IsZero() {
			s.failing = time.Now()
		}
	}
	return err
}

// isUnanswered reports whether a failure means that the server does not answer, or only with errors of its own.
func isUnanswered(kind keepwatch.FailureKind) bool {
	switch kind {
	case keepwatch.Idle, keepwatch.Unreachable, keepwatch.Untrusted, keepwatch.Unauthorized, keepwatch.Throttled,
		keepwatch.ServerError, keepwatch.UnknownStatus:
		return true
	}
	return false
}

// ListedBytes returns the size of the objects that the newest list has read.
func (s *Source) ListedBytes() int64 { return s.listed.Load() }

// FailingSince returns since when the server does not answer, zero while it does.
func (s *Source) FailingSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}
