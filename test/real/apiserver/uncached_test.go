package apiserver

import "testing"

// TestNoWatchCache switches the watch cache off, and Keepwatch's reads with it: upstream's code answers all reads, from
// etcd.
func TestNoWatchCache(t *testing.T) {
	s := startBoth(t, "--watch-cache=false")
	const all = "/apis/" + customGroup + "/v1/widgets"
	s.define(widgets())
	s.shows(all, asJSON, `"WidgetList"`)
	for _, at := range []string{"default/a", "default/b", "kube-system/c"} {
		s.createWidget(at)
	}
	s.shows(all, asJSON, `"size":3`)
	s.sameReads()
	for _, path := range []string{"/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses"} {
		for _, accept := range []string{asJSON, asTable, asMetadata} {
			s.same(path, accept, "")
		}
	}
	if n := s.answered(); n > 0 {
		t.Errorf("%d reads were answered from a watch cache", n)
	}
}
