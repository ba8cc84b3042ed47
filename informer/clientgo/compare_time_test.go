package clientgo_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// builds has both informers, client-go's first.
var builds = []struct {
	by    string
	build func(cache.ListerWatcher) cache.SharedIndexInformer
}{
	{"client-go", func(lw cache.ListerWatcher) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	}},
	{"keepwatch", func(lw cache.ListerWatcher) cache.SharedIndexInformer {
		return clientgo.NewGroup(clientgo.Seed(1)).NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	}},
}

// compareInSynctest runs a scenario for both informers in virtual time, and returns Keepwatch's
// outcome.
func compareInSynctest[T any](t *testing.T, client func() cache.ListerWatcher, scenario func(t *testing.T,
	lw cache.ListerWatcher, inf cache.SharedIndexInformer) T) (keepwatch T) {
	t.Helper()
	for _, b := range builds {
		synctest.Test(t, func(t *testing.T) {
			lw := client()
			keepwatch = scenario(t, lw, b.build(lw))
		})
		t.Logf("%s: %v", b.by, keepwatch)
	}
	return keepwatch
}

// scripted is the client of a script, and the script.
type scripted struct {
	cache.ListerWatcher
	*script
}

func scriptOfOne() cache.ListerWatcher {
	s := newScript("10", podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
	return scripted{s.client(), s}
}

// live completes the streaming list of the script's informer.
func live(s *script) (stream *watch.FakeWatcher) {
	stream = <-s.watches
	stream.Add(podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
	end := podtest.Pod("", podtest.At(10))
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	stream.Action(watch.Bookmark, end)
	synctest.Wait()
	return stream
}

const longEnough = time.Hour

// within returns how long it takes until a channel receives, at most an hour.
func within[T any](happens <-chan T) time.Duration {
	begin := time.Now()
	select {
	case <-happens:
	case <-time.After(longEnough):
	}
	return time.Since(begin)
}

// A streaming list that does not end is abandoned (kubernetes #140890).
func TestCompareEndlessStreamingLists(t *testing.T) {
	took := compareInSynctest(t, scriptOfOne, func(t *testing.T, lw cache.ListerWatcher,
		inf cache.SharedIndexInformer) time.Duration {
		stop := podtest.Run(t, inf)
		defer stop()
		(<-lw.(scripted).watches).Add(podtest.Pod("a", podtest.UID("a"), podtest.At(5)))
		return within(syncedOf(t, inf))
	})
	if took.Truncate(time.Second) > 10*time.Second {
		t.Errorf("keepwatch has synced after %v", took)
	}
}

// A half-open connection is abandoned after two periods of bookmarks and some seconds.
func TestCompareSilence(t *testing.T) {
	took := compareInSynctest(t, scriptOfOne, func(t *testing.T, lw cache.ListerWatcher,
		inf cache.SharedIndexInformer) time.Duration {
		stop := podtest.Run(t, inf)
		defer stop()
		live(lw.(scripted).script)
		return within(lw.(scripted).watches)
	})
	if took > 2*time.Minute+15*time.Second {
		t.Errorf("keepwatch watched again after %v", took)
	}
}

// If a server accepts watches and, minutes later, fails each before its first event, the waits
// between requests grow: the time that a watch was open is not progress.
func TestCompareBackoff(t *testing.T) {
	const rounds = 9 // one fewer than cause a list
	type pace struct {
		waits []time.Duration
		lists bool // after them
	}
	keepwatch := compareInSynctest(t, scriptOfOne, func(t *testing.T, lw cache.ListerWatcher,
		inf cache.SharedIndexInformer) (p pace) {
		s := lw.(scripted).script
		stop := podtest.Run(t, inf)
		defer stop()
		stream := live(s)
		for range rounds {
			time.Sleep(130*time.Second - time.Millisecond)
			stream.Error(&metav1.Status{Status: "Failure", Reason: metav1.StatusReasonInternalError, Code: 500, Message: "oops"})
			failed := time.Now()
			stream = <-s.watches
			if s.watchOptions[len(s.watchOptions)-1].SendInitialEvents != nil {
				stream.Stop()
				p.lists = true
				return p
			}
			p.waits = append(p.waits, time.Since(failed).Round(time.Millisecond))
		}
		return p
	})
	if most := slices.Max(keepwatch.waits); keepwatch.lists || most < 10*time.Second || most > 30*time.Second {
		t.Errorf("keepwatch: %v", keepwatch)
	}
}

// A client that neither responds nor ends with its context does not block the end.
func TestCompareStop(t *testing.T) {
	var hang chan struct{}
	took := compareInSynctest(t, func() cache.ListerWatcher {
		hang = make(chan struct{})
		return &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				<-hang
				return nil, errors.New("at last")
			},
		}
	}, func(_ *testing.T, _ cache.ListerWatcher, inf cache.SharedIndexInformer) time.Duration {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			inf.RunWithContext(ctx)
		}()
		time.Sleep(time.Second)
		cancel()
		took := within(ended)
		close(hang)
		<-ended
		return took
	})
	if took > 5*time.Second {
		t.Errorf("keepwatch ended after %v", took)
	}
}
