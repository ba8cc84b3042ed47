package readpath

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// lateSource is a source whose watches deliver nothing once it is held.
type lateSource struct {
	*memory.Source
	held chan struct{}
}

func (s lateSource) Seed(ctx context.Context, target keepwatch.Target) error {
	_, err := s.Source.Seed(ctx, target, 1000)
	return err
}

func (s lateSource) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	w, err := s.Source.Watch(ctx, from)
	return lateWatch{w, ctx, s.held}, err
}

type lateWatch struct {
	keepwatch.Watch
	ctx  context.Context
	held chan struct{}
}

func (w lateWatch) Next() (keepwatch.Batch, error) {
	batch, err := w.Watch.Next()
	select {
	case <-w.held:
		<-w.ctx.Done()
	default:
	}
	return batch, err
}

// late makes the rig read from a cache that follows its database until held is closed.
func (r *rig) late(held chan struct{}) {
	config := watchcache.Config{
		GroupResource: r.kind.resource.GroupResource(), ResourcePrefix: "/" + r.kind.resource.Resource, Namespaced: true,
		SourceName: "memory", Codec: r.kind.codec, NewFunc: r.kind.newObject, GetAttrs: attributes,
		SourcePrefix: registry + "/" + r.kind.resource.Resource + "/",
	}
	cache := must(watchcache.New(config, func(c *watchcache.Cache) (watchcache.Source, error) {
		return lateSource{r.db.Source(memory.Options{Prefix: config.SourcePrefix,
			Decode: func(o *memory.Object, value []byte) keepwatch.Object { return c.NewObject(o, value) }}), held}, nil
	}))(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cache.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-ended })
	must(0, cache.WaitUntilReady(r.t.Context()))(r.t)
	resource := *r.reader.resource
	resource.Cache = cache
	r.reader = must(NewReader(resource, r.reader.budget))(r.t)
}

// A consistent read that has waited for a late cache is delegated, and the API server's handlers do not wait for the
// cache again.
func TestDelegatedReadsDoNotWaitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, held := newRig(t, pods, options{}), make(chan struct{})
		r.late(held)
		r.create("default", "o1")
		synctest.Wait()
		close(held)
		r.create("default", "o2")
		r.next = func(q *http.Request) {
			// The watch cache's own test shows that reads in such a context do not wait.
			if of := fmt.Sprint(q.Context()); !strings.Contains(of, "watchcache.waited") {
				t.Errorf("the handlers do not know that the request has waited: %s", of)
			}
		}
		q := r.withInfo(must(http.NewRequestWithContext(t.Context(), http.MethodGet, r.path("default"), nil))(t))
		q.Header = accept("application/json")
		r.handler.ServeHTTP(&receiver{ended: t.Context().Done()}, q)
		if n := r.delegated.Load(); n != 1 {
			t.Errorf("%d requests were delegated", n)
		}
	})
}
