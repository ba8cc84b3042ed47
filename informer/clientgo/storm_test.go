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

	"github.com/keepwatch/keepwatch/informer/internal/podtest"
)

// storm is a ListerWatcher of many small pods that change as fast as they are read.
type storm struct {
	events chan watch.Event
	mu     sync.Mutex
	at     int
	held   []*corev1.Pod
}

func newStorm(n int) *storm {
	s := &storm{events: make(chan watch.Event, 1000)}
	for i := range n {
		s.at++
		s.held = append(s.held, podtest.Pod(fmt.Sprint(i), podtest.UID(fmt.Sprint(i)), podtest.At(s.at)))
	}
	return s
}

func (s *storm) next(p *corev1.Pod) *corev1.Pod {
	s.at++
	p = podtest.Pod(p.Name, podtest.UID(string(p.UID)), podtest.At(s.at))
	return p
}

// updates changes one pod after the other.
func (s *storm) updates(n int) {
	for i := range n {
		s.mu.Lock()
		j := i % len(s.held)
		s.held[j] = s.next(s.held[j])
		event := watch.Event{Type: watch.Modified, Object: s.held[j]}
		s.mu.Unlock()
		s.events <- event
	}
}

// deletions deletes the first n pods.
func (s *storm) deletions(n int) {
	for range n {
		s.mu.Lock()
		gone := s.next(s.held[0])
		s.held = s.held[1:]
		s.mu.Unlock()
		s.events <- watch.Event{Type: watch.Deleted, Object: gone}
	}
}

func (s *storm) revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.at)
}

func (s *storm) state() map[string]string {
	state := map[string]string{}
	for _, p := range s.held {
		state[p.Name] = p.ResourceVersion
	}
	return state
}

func (s *storm) IsWatchListSemanticsUnSupported() bool { return false }

func (s *storm) List(metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.at)}}
	for _, p := range s.held {
		list.Items = append(list.Items, *p)
	}
	return list, nil
}

func (s *storm) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return noWatch(context.Background(), options)
	}
	return stormWatch{s.events}, nil
}

type stormWatch struct{ events chan watch.Event }

func (w stormWatch) ResultChan() <-chan watch.Event { return w.events }
func (stormWatch) Stop()                            {}
