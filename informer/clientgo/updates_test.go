package clientgo_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// updates is a ListerWatcher of many small pods that change as fast as they are read.
type updates struct {
	events chan watch.Event
	mu     sync.Mutex
	at     int
	pods   []*corev1.Pod
}

func newUpdates(n int) *updates {
	s := &updates{events: make(chan watch.Event, 1000)}
	for i := range n {
		s.at++
		s.pods = append(s.pods, podtest.Pod(fmt.Sprint(i), podtest.UID(fmt.Sprint(i)), podtest.At(s.at)))
	}
	return s
}

func (s *updates) next(p *corev1.Pod) *corev1.Pod {
	s.at++
	p = podtest.Pod(p.Name, podtest.UID(string(p.UID)), podtest.At(s.at))
	return p
}

// updates changes one pod after the other.
func (s *updates) updates(n int) {
	for i := range n {
		s.mu.Lock()
		j := i % len(s.pods)
		s.pods[j] = s.next(s.pods[j])
		event := watch.Event{Type: watch.Modified, Object: s.pods[j]}
		s.mu.Unlock()
		s.events <- event
	}
}

// deletions deletes the first n pods.
func (s *updates) deletions(n int) {
	for range n {
		s.mu.Lock()
		gone := s.next(s.pods[0])
		s.pods = s.pods[1:]
		s.mu.Unlock()
		s.events <- watch.Event{Type: watch.Deleted, Object: gone}
	}
}

func (s *updates) revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.at)
}

func (s *updates) state() map[string]string {
	state := map[string]string{}
	for _, p := range s.pods {
		state[p.Name] = p.ResourceVersion
	}
	return state
}

func (s *updates) IsWatchListSemanticsUnSupported() bool { return false }

func (s *updates) List(metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.at)}}
	for _, p := range s.pods {
		list.Items = append(list.Items, *p)
	}
	return list, nil
}

func (s *updates) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return noWatch(context.Background(), options)
	}
	return updatesWatch{s.events}, nil
}

type updatesWatch struct{ events chan watch.Event }

func (w updatesWatch) ResultChan() <-chan watch.Event { return w.events }
func (updatesWatch) Stop()                            {}
