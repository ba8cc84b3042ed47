package clientgo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// script is a server with revisions whose watches the test controls.
type script struct {
	list         corev1.PodList
	watches      chan *watch.FakeWatcher
	watchOptions []metav1.ListOptions // of watches
	listOptions  []metav1.ListOptions
}

func newScript(revision string, pods ...*corev1.Pod) *script {
	s := &script{watches: make(chan *watch.FakeWatcher, 100)}
	s.list.ResourceVersion = revision
	for _, p := range pods {
		s.list.Items = append(s.list.Items, *p)
	}
	return s
}

func (s *script) client() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			s.listOptions = append(s.listOptions, options)
			return s.list.DeepCopy(), nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			s.watchOptions = append(s.watchOptions, options)
			w := watch.NewFakeWithChanSize(100, false)
			s.watches <- w
			return w, nil
		},
	}
}

// A streaming list that does not end is abandoned after 10 s; client-go waits without limit
// (kubernetes #140890).
func TestEndlessStreamingList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript("10", podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
		inf := shared(s.client(), 0)
		begin := time.Now()
		stop := podtest.Run(t, inf)
		(<-s.watches).Add(podtest.Pod("a", podtest.UID("a"), podtest.At(5))) // without an end
		<-syncedOf(t, inf)
		if took := time.Since(begin); took.Truncate(time.Second) != 10*time.Second {
			t.Errorf("synced after %v", took)
		}
		synctest.Wait()
		if len(s.listOptions) != 1 || s.watchOptions[0].SendInitialEvents == nil {
			t.Errorf("lists %v, watches %v", s.listOptions, s.watchOptions)
		}
		stop()
	})
}

// A list in pages replaces streaming lists that a proxy resets before their end.
func TestStreamingListsAreReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript("10", podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
		inf := shared(s.client(), 0)
		stop := podtest.Run(t, inf)
		for range 2 {
			stream := <-s.watches
			stream.Add(podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
			stream.Error(reset())
		}
		<-syncedOf(t, inf)
		if len(s.listOptions) != 1 {
			t.Errorf("lists %v", s.listOptions)
		}
		stop()
	})
}

// reset returns client-go's event for an HTTP/2 stream that was reset.
func reset() *metav1.Status {
	status := apierrors.NewInternalError(errors.New(
		"unable to decode an event from the watch stream: stream error: stream ID 3; INTERNAL_ERROR")).Status()
	status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: "ClientWatchDecoding"})
	return &status
}

// A half-open connection is silent. After two periods of bookmarks and some seconds it is
// abandoned, and a new watch resumes without a list.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript("10", podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
		inf := shared(s.client(), 0)
		var events recorder
		handle(t, inf, &events)
		stop := podtest.Run(t, inf)
		stream := <-s.watches
		stream.Add(podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
		end := podtest.Pod("", podtest.At(10))
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		stream.Action(watch.Bookmark, end)
		synctest.Wait()
		events.want(t, "add! a@5")
		silent := time.Now()
		second := <-s.watches
		if took := time.Since(silent); took > 2*time.Minute+15*time.Second {
			t.Errorf("given up after %v", took)
		}
		second.Modify(podtest.Pod("a", podtest.UID("a"), podtest.At(11)))
		synctest.Wait()
		events.want(t, "add! a@5", "update a@5 to a@11")
		if got := s.watchOptions[1].ResourceVersion; got != "10" || len(s.listOptions) != 0 {
			t.Errorf("watched from %q; %d lists", got, len(s.listOptions))
		}
		if n := inf.Status().Reconnects[keepwatch.Idle]; n != 1 {
			t.Errorf("%d reconnects", n)
		}
		stop()
	})
}

// A bookmark shows that the watch is open, and advances the revision to resume from.
func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript("10", podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
		inf := shared(s.client(), 0)
		stop := podtest.Run(t, inf)
		stream := <-s.watches
		end := podtest.Pod("", podtest.At(10))
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		stream.Action(watch.Bookmark, end)
		for minute := range 10 {
			time.Sleep(time.Minute)
			stream.Action(watch.Bookmark, podtest.Pod("", podtest.At(20+minute)))
		}
		synctest.Wait()
		stored := inf.GetStore().(interface{ LastStoreSyncResourceVersion() string }).LastStoreSyncResourceVersion()
		if len(s.watchOptions) != 1 || inf.LastSyncResourceVersion() != "29" || stored != "29" {
			t.Errorf("%d watches, at %s, stored %s", len(s.watchOptions), inf.LastSyncResourceVersion(), stored)
		}
		stream.Stop()
		<-s.watches
		synctest.Wait()
		if got := s.watchOptions[1].ResourceVersion; got != "29" {
			t.Errorf("resumed from %s", got)
		}
		stop()
	})
}

// An event that contradicts the order of the server's revisions is not applied. It causes a list.
func TestProtocolViolations(t *testing.T) {
	for name, send := range map[string]func(*watch.FakeWatcher){
		"no resource version": func(w *watch.FakeWatcher) { w.Modify(podtest.Pod("a", podtest.UID("a"))) },
		"no number": func(w *watch.FakeWatcher) {
			p := podtest.Pod("a", podtest.UID("a"))
			p.ResourceVersion = "x"
			w.Modify(p)
		},
		"a bookmark without one": func(w *watch.FakeWatcher) { w.Action(watch.Bookmark, podtest.Pod("")) },
		"unknown event": func(w *watch.FakeWatcher) {
			w.Action("PATCHED", podtest.Pod("a", podtest.UID("a"), podtest.At(11)))
		},
		"modified, never added": func(w *watch.FakeWatcher) {
			w.Modify(podtest.Pod("b", podtest.UID("b"), podtest.At(11)))
		},
		"deleted, at its own age": func(w *watch.FakeWatcher) { w.Delete(podtest.Pod("a", podtest.UID("a"), podtest.At(5))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript("10", podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
				inf := shared(s.client(), 0)
				stop := podtest.Run(t, inf)
				stream := <-s.watches
				stream.Add(podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
				end := podtest.Pod("", podtest.At(10))
				end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
				stream.Action(watch.Bookmark, end)
				synctest.Wait()
				s.list.ResourceVersion = "12"
				send(stream)
				<-s.watches
				synctest.Wait()
				status := inf.Status()
				if status.Relists[keepwatch.ProtocolViolation] != 1 || len(s.listOptions) != 1 || status.ResourceVersion != "12" {
					t.Errorf("relists %v, %d lists, at %s", status.Relists, len(s.listOptions), status.ResourceVersion)
				}
				stop()
			})
		})
	}
}
