package informer_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// A compact informer returns the same objects as others.
func TestCompact(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a", podtest.Mark("1")), podtest.Pod("b", podtest.Mark("2")))
	inf := pods(t, s, informer.Compact(), informer.Index("mark", func(p *corev1.Pod) []string {
		return []string{p.Labels["mark"]}
	}),
		informer.Transform(func(p *corev1.Pod) (*corev1.Pod, error) {
			p.Spec.NodeName = "seen"
			return p, nil
		}))
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	a, ok := inf.Get("ns", "a")
	if !ok || a.Labels["mark"] != "1" || a.Spec.NodeName != "seen" || a.ResourceVersion != "101" {
		t.Errorf("a is %v", a)
	}
	s.Put(podtest.Pod("a", podtest.Mark("3")))
	podtest.Eventually(t, func() bool {
		a, ok := inf.Get("ns", "a")
		return ok && a.Labels["mark"] == "3"
	}, func() string { return fmt.Sprint(inf.Status()) })
	if got := names(inf.Snapshot().ByIndex("mark", "3")); len(got) != 1 || got[0] != "a" {
		t.Errorf("by index: %v", got)
	}
}

// An object that cannot be decoded is skipped and counted; other objects are not.
func TestUndecodable(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
	inf := pods(t, s)
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	podtest.Eventually(t, func() bool { _, _, watches := s.Counts(); return watches > 0 }, func() string {
		return "no watch"
	})
	s.Inject(`{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"a-101","resourceVersion":"200"},"spec":{"nodeName":7}}}` + "\n")
	key := keepwatch.Key{Namespace: "ns", Name: "a"}
	podtest.Eventually(t, func() bool { return inf.Status().Rejected[key] != nil }, func() string {
		return fmt.Sprint(inf.Status())
	})
	if _, ok := inf.Get("ns", "a"); ok {
		t.Error("a is shown in an old state")
	}
	if got := inf.Status().Rejected[key].Error(); !strings.Contains(got, "decode ns/a") {
		t.Errorf("rejected because %q", got)
	}
	if got := names(inf.All()); len(got) != 1 || got[0] != "b" {
		t.Errorf("shown are %v", got)
	}
	if lists, _, _ := s.Counts(); lists != 1 {
		t.Errorf("%d lists, with the first", lists)
	}
}
