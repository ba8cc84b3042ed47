package storage_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// patient is a rig on which the library's own deadlines, of 100 ms to 5 s, decide nothing. What it creates is created
// after any time. Its watches show their deadline but do not end at it, and their ResultChan returns when there is what
// the test expects: the library calls it before it starts a timer.
type patient struct {
	*rig
	// expect waits for that, before each call of ResultChan. Nil waits for nothing.
	expect func(p patient, o apistorage.ListOptions, w watch.Interface)
}

func (p patient) Create(ctx context.Context, key string, o, out runtime.Object, ttl uint64) error {
	return p.rig.Create(context.WithoutCancel(ctx), key, o, out, ttl)
}

func (p patient) Watch(ctx context.Context, key string, o apistorage.ListOptions) (watch.Interface, error) {
	w, err := p.rig.Watch(endless{context.WithoutCancel(ctx), ctx}, key, o)
	if err != nil || p.expect == nil {
		return w, err
	}
	return expecting{w, func() { p.expect(p, o, w) }}, nil
}

// endless is a context that shows the deadline of another one.
type endless struct {
	context.Context
	of context.Context
}

func (e endless) Deadline() (time.Time, bool) { return e.of.Deadline() }

type expecting struct {
	watch.Interface
	expect func()
}

func (e expecting) ResultChan() <-chan watch.Event {
	e.expect()
	return e.Interface.ResultChan()
}

// anEvent waits until a watch has sent something.
func anEvent(p patient, _ apistorage.ListOptions, w watch.Interface) {
	await.True(p.t, "the watch has sent an event", func() bool { return len(w.ResultChan()) > 0 })
}

// aBookmark is anEvent for watches with bookmarks. It waits for nothing on the others.
func aBookmark(p patient, o apistorage.ListOptions, w watch.Interface) {
	if o.Predicate.AllowWatchBookmarks {
		anEvent(p, o, w)
	}
}

// progress requests progress, in place of the periodic one, and waits until the watch has sent it.
func progress(p patient, o apistorage.ListOptions, w watch.Interface) {
	must(0, p.RequestWatchProgress(context.Background()))(p.t)
	anEvent(p, o, w)
}

// full returns a function that waits once, until a watch has sent as much as it does without a reader.
func full() func(patient, apistorage.ListOptions, watch.Interface) {
	var once sync.Once
	return func(p patient, _ apistorage.ListOptions, w watch.Interface) {
		once.Do(func() {
			sent := w.ResultChan()
			await.True(p.t, "the watch waits for its reader", func() bool { return len(sent) == cap(sent) })
		})
	}
}

// upToBookmark is a patient rig whose watches end at their deadline, but not before they have sent a bookmark.
type upToBookmark struct{ patient }

func (u upToBookmark) Watch(ctx context.Context, key string, o apistorage.ListOptions) (watch.Interface, error) {
	w, err := u.patient.Watch(ctx, key, o)
	if err != nil {
		return nil, err
	}
	bookmarked, sent := make(chan struct{}), make(chan watch.Event)
	sees := sync.OnceFunc(func() { close(bookmarked) })
	go func() {
		defer close(sent)
		for e := range w.ResultChan() {
			sent <- e
			if e.Type == watch.Bookmark {
				sees()
			}
		}
		sees()
	}()
	context.AfterFunc(ctx, func() { <-bookmarked; w.Stop() })
	return watch.NewProxyWatcher(sent), nil
}

// settled is a patient rig whose watches have sent, when ResultChan returns, everything that was written until then: a
// test that waits for more in vain does so at any speed. To know this, they request progress, which the test does not
// see.
type settled struct{ patient }

func (s settled) Watch(ctx context.Context, key string, o apistorage.ListOptions) (watch.Interface, error) {
	o.ProgressNotify = true
	w, err := s.patient.Watch(ctx, key, o)
	if err != nil {
		return nil, err
	}
	return &settledWatch{w, s.rig, make(chan watch.Event, 100)}, nil
}

type settledWatch struct {
	watch.Interface
	rig  *rig
	sent chan watch.Event
}

func (w *settledWatch) ResultChan() <-chan watch.Event {
	t, ctx := w.rig.t, context.Background()
	now := uint64(must(w.rig.writeElsewhere(ctx))(t))
	must(0, w.rig.RequestWatchProgress(ctx))(t)
	for {
		e := await.Receive(t, "progress of the watch", w.Interface.ResultChan())
		switch {
		case e.Type == "":
			t.Fatal("the watch has ended")
		case e.Type != watch.Bookmark || endsInitialEvents(t, e.Object):
			w.sent <- e
		case must(w.rig.Versioner().ObjectResourceVersion(e.Object))(t) >= now:
			return w.sent
		}
	}
}

func endsInitialEvents(t testing.TB, o runtime.Object) bool {
	return must(meta.Accessor(o))(t).GetAnnotations()[metav1.InitialEventsAnnotationKey] != ""
}

// leased is a rig on which a time to live of a second is an hour: on a busy machine, a second is over before the object
// is read, or even written. A watch ends the leases once it has begun.
type leased struct{ *rig }

func (l leased) Create(ctx context.Context, key string, o, out runtime.Object, ttl uint64) error {
	return l.rig.Create(ctx, key, o, out, 3600*ttl)
}

func (l leased) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, cached runtime.Object) error {
	longer := func(now runtime.Object, about apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
		o, ttl, err := update(now, about)
		if ttl != nil {
			hours := 3600 * *ttl
			ttl = &hours
		}
		return o, ttl, err
	}
	return l.rig.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, longer, cached)
}

func (l leased) Watch(ctx context.Context, key string, o apistorage.ListOptions) (watch.Interface, error) {
	w, err := l.rig.Watch(ctx, key, o)
	for _, lease := range must(l.etcd.Leases(ctx))(l.t).Leases {
		must(l.etcd.Revoke(ctx, lease.ID))(l.t)
	}
	return w, err
}
