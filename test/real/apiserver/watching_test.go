package apiserver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	eventResource     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

func client(t *testing.T, server *peer.Server, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(resource).Namespace("default")
}

// watching is an open watch and the events that it has received.
type watching struct {
	mu       sync.Mutex
	received []watch.Event
	added    chan struct{} // has an item after an event
	ended    bool
}

// startWatch watches from a revision on until the test ends.
func startWatch(t *testing.T, resource dynamic.ResourceInterface, revision string) *watching {
	t.Helper()
	stream, err := resource.Watch(t.Context(), metav1.ListOptions{ResourceVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	return receive(t, stream)
}

// startResuming watches from a revision on, as a client that resumes when the server ends its watch.
func startResuming(t *testing.T, resource dynamic.ResourceInterface, revision string) *watching {
	t.Helper()
	stream, err := watchtools.NewRetryWatcherWithContext(t.Context(), revision, resuming{resource})
	if err != nil {
		t.Fatal(err)
	}
	return receive(t, stream)
}

// resuming is a resource as client-go's RetryWatcher watches it.
type resuming struct{ dynamic.ResourceInterface }

func (r resuming) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return r.Watch(ctx, options)
}

// receive collects the events of a watch until the test ends.
func receive(t *testing.T, stream watch.Interface) *watching {
	t.Helper()
	w, done := &watching{added: make(chan struct{}, 1)}, make(chan struct{})
	go func() {
		defer close(done)
		for e := range stream.ResultChan() {
			w.add(e)
		}
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
	}()
	t.Cleanup(func() {
		stream.Stop()
		<-done
	})
	return w
}

// open describes the watch if the server has not ended it.
func (w *watching) open() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return ""
	}
	return fmt.Sprintf("it is open after %d events", len(w.received))
}

func (w *watching) add(e watch.Event) {
	w.mu.Lock()
	w.received = append(w.received, e)
	w.mu.Unlock()
	select {
	case w.added <- struct{}{}:
	default:
	}
}

// events returns the first n events.
func (w *watching) events(t *testing.T, n int) []watch.Event {
	t.Helper()
	timer := time.NewTimer(await.Deadline)
	defer timer.Stop()
	for {
		w.mu.Lock()
		received, ended := w.received, w.ended
		w.mu.Unlock()
		if len(received) >= n {
			return received[:n]
		}
		if ended {
			t.Fatalf("the watch ended after %d of %d events", len(received), n)
		}
		select {
		case <-w.added:
		case <-timer.C:
			t.Fatalf("the watch has %d of %d events after %v", len(received), n, await.Deadline)
		}
	}
}

// summaries describes events: type, name and revision.
func summaries(events []watch.Event) []string {
	all := make([]string, len(events))
	for i, e := range events {
		all[i] = string(e.Type)
		if o, ok := e.Object.(*unstructured.Unstructured); ok {
			all[i] = fmt.Sprintf("%s %s@%s", e.Type, o.GetName(), o.GetResourceVersion())
		}
	}
	return all
}

func configMap(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "data": map[string]any{"count": "0"}}}
}
