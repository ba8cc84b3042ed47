package clientgo_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// silentServer is a server of pods whose watches stay open and deliver nothing.
type silentServer struct {
	mu     sync.Mutex
	states []map[string]int // by revision: the revisions of the pods by name
	lists  int              // of the newest state
	watch  *watch.FakeWatcher
	resets bool // it resets each watch at once
}

// write makes a revision. An empty name is another resource's.
func (s *silentServer) write(name string, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[string]int{}
	if len(s.states) > 0 {
		next = maps.Clone(s.states[len(s.states)-1])
	}
	switch {
	case name != "" && exists:
		next[name] = len(s.states)
	default:
		delete(next, name)
	}
	s.states = append(s.states, next)
}

func (s *silentServer) List(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.states) - 1
	switch {
	case options.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		at, _ = strconv.Atoi(options.ResourceVersion)
	case options.Limit != 1:
		s.lists++
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(at)}}
	for _, name := range slices.Sorted(maps.Keys(s.states[at])) {
		p := podtest.Pod(name)
		p.UID, p.ResourceVersion = types.UID(name), strconv.Itoa(s.states[at][name])
		list.Items = append(list.Items, *p)
	}
	return list, nil
}

func (s *silentServer) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = watch.NewFakeWithChanSize(1, false)
	if s.resets {
		s.watch.Error(reset())
	}
	return s.watch, nil
}

// An informer whose watches are reset at once, because the server cannot send an event, is brought up to date by lists.
func TestWatchesAreReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silentServer{resets: true}
		s.write("", false) // no object has revision 0
		s.write("a", true)
		s.write("b", true)
		inf := shared(&cache.ListWatch{ListWithContextFunc: s.List, WatchFuncWithContext: s.Watch}, 0)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		s.write("a", false)
		time.Sleep(10 * time.Minute)
		if keys := inf.GetStore().ListKeys(); len(keys) != 1 || s.listCount() != 2 {
			t.Errorf("after a deletion: %q, %d lists", keys, s.listCount())
		}
		stop()
	})
}

func (s *silentServer) listCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// An informer whose watches are silent is brought up to date by lists and is not healthy, until a
// watch delivers something. While only other resources change it lists nothing.
func TestSilentWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silentServer{}
		s.write("", false) // no object has revision 0
		s.write("a", true)
		s.write("b", true)
		group := clientgo.NewGroup()
		inf := group.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: s.List, WatchFuncWithContext: s.Watch},
			&corev1.Pod{}, 0, nil)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		names := func() string { return strings.Join(slices.Sorted(slices.Values(inf.GetStore().ListKeys())), " ") }

		for range 60 { // another resource changes
			time.Sleep(time.Minute)
			s.write("", false)
		}
		if err := group.Check(nil); err != nil || s.listCount() != 1 {
			t.Errorf("while only another resource changes: %v, %d lists", err, s.listCount())
		}

		s.write("a", false)
		time.Sleep(10 * time.Minute)
		if got := names(); got != "ns/b" {
			t.Errorf("after a deletion: %s", got)
		}
		status := group.Status()["*v1.Pod"]
		if status.State != health.Stale || status.Relists[keepwatch.Silent] != 1 || s.listCount() != 2 {
			t.Errorf("%s, %v, %d lists", status.State, status.Relists, s.listCount())
		}
		if err := group.Check(nil); err == nil || !strings.Contains(err.Error(), "STALE (current ") {
			t.Errorf("healthy: %v", err)
		}

		for range 10 { // it changes all the time: one list in each idle timeout
			s.write("c", true)
			time.Sleep(time.Minute)
		}
		if got, lists := names(), s.listCount(); got != "ns/b ns/c" || lists < 4 || lists > 7 {
			t.Errorf("after 10 changes in 10 minutes: %s, %d lists", got, lists)
		}

		p := podtest.Pod("d")
		p.UID, p.ResourceVersion = "d", "1000"
		s.mu.Lock()
		s.watch.Add(p)
		s.mu.Unlock()
		synctest.Wait()
		status = group.Status()["*v1.Pod"]
		if err := group.Check(nil); err != nil || status.State != health.Live || names() != "ns/b ns/c ns/d" {
			t.Errorf("when a watch has delivered: %v, %s, %s", err, status.State, names())
		}
		stop()
	})
}
