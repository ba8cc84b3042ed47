package apiserver

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/test/differential"
	"github.com/keepwatch/keepwatch/test/peer"
)

// TestEventsOnAnotherEtcd stores events in an etcd of their own, whose revisions are far below those of
// the other one, as a client's of another resource would be mistaken for it.
func TestEventsOnAnotherEtcd(t *testing.T) {
	notShort(t)
	etcd, eventsEtcd := peer.StartEtcd(t), peer.StartEtcd(t)
	// events are not cached by default
	flags := append(common, "--etcd-servers-overrides", "/events#"+string(eventsEtcd.Endpoint), "--watch-cache-sizes",
		"events#100")
	ours := peer.KeepwatchAPIServerOn(t, etcd, flags...)
	theirs := peer.KeepwatchAPIServerOn(t, etcd, append(flags, "--reads=upstream")...)
	ourSide, theirSide := side(t, ours), side(t, theirs)
	fill(t, client(t, ours, configMapResource), 20)
	writers := []dynamic.ResourceInterface{client(t, ours, eventResource), client(t, theirs, eventResource)}
	start := list(t, writers[0]).GetResourceVersion()
	watches := []*watching{startWatch(t, writers[0], start), startWatch(t, writers[1], start)}
	const written = 12
	for i := range written {
		if _, err := writers[i%2].Create(t.Context(), event(fmt.Sprintf("event-%02d", i)),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := summaries(watches[1].events(t, written))
	if got := summaries(watches[0].events(t, written)); !slices.Equal(got, want) {
		t.Errorf("events are\n%v\nupstream\n%v", got, want)
	}
	newest := list(t, writers[1]).GetResourceVersion()
	revision, err := strconv.ParseInt(newest, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if of := list(t, client(t, ours, configMapResource)).GetResourceVersion(); of == newest {
		t.Errorf("events and config maps have one revision, %s", of)
	}
	compare := func() {
		t.Helper()
		var asking sync.WaitGroup
		defer asking.Wait()
		for _, path := range []string{"/api/v1/events", "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/events",
			"/api/v1/namespaces/default/events/event-03"} {
			for _, options := range []url.Values{
				{}, {"limit": {"5"}}, {"resourceVersion": {"0"}}, {"resourceVersion": {newest}},
				{"resourceVersion": {newest}, "resourceVersionMatch": {"Exact"}},
				{"resourceVersion": {fmt.Sprint(revision - 4)}, "resourceVersionMatch": {"Exact"}},
				{"resourceVersion": {fmt.Sprint(revision - 4)}, "watch": {"true"}, "timeoutSeconds": {"1"}},
				{"fieldSelector": {"involvedObject.name=pod-1"}}, {"fieldSelector": {"reason!=r"}},
			} {
				r := differential.Request{Path: path, Options: options, Stream: options.Has("watch")}
				asking.Go(func() {
					all := differential.SameVersion().Compare(r, theirSide.Ask(t.Context(), r), ourSide.Ask(t.Context(), r))
					// Upstream writes continue tokens with a slash or without.
					if all = slices.DeleteFunc(all, func(d differential.Difference) bool {
						return d.Where == "body .metadata.continue"
					}); len(all) > 0 {
						t.Errorf("%s: %+v", r, all)
					}
				})
			}
		}
	}
	compare()
	const lists = 50
	before := listsAnswered(t, ours)
	for range lists {
		list(t, client(t, ours, eventResource))
	}
	if n := listsAnswered(t, ours) - before; n < lists {
		t.Errorf("%v of %d lists of events were answered from the watch cache", n, lists)
	}
	if err := ours.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := summaries(startWatch(t, client(t, ours, eventResource), start).events(t, written)); !slices.Equal(got,
		want) {
		t.Errorf("after a restart, events are\n%v\nupstream\n%v", got, want)
	}
	compare()
}

// listsAnswered returns how many lists a server has answered from a watch cache.
func listsAnswered(t *testing.T, s *peer.Server) float64 {
	t.Helper()
	metrics, err := s.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return metrics.Sum("keepwatch_readpath_answered_total", peer.Labels{"verb": "list"})
}

func side(t *testing.T, s *peer.Server) *differential.Side {
	t.Helper()
	side, err := differential.NewSide("", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(side.Close)
	return side
}

func event(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Event",
		"metadata":       map[string]any{"name": name, "namespace": "default"},
		"involvedObject": map[string]any{"kind": "Pod", "namespace": "default", "name": "pod-1"},
		"reason":         "r", "message": "m", "type": "Normal"}}
}
