package apiserver

import (
	"maps"
	"testing"
	_ "unsafe" // go:linkname

	"k8s.io/apimachinery/pkg/runtime/schema"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

//go:linkname upstreamPriorities k8s.io/kubernetes/cmd/kube-apiserver/app.apiVersionPriorities
var upstreamPriorities map[schema.GroupVersion]controlplaneapiserver.APIServicePriority

// TestVersionPriorities: every new version of Kubernetes may change them.
func TestVersionPriorities(t *testing.T) {
	if ours := versionPriorities(); len(upstreamPriorities) == 0 || !maps.Equal(ours, upstreamPriorities) {
		t.Errorf("the priorities are %v, kube-apiserver's %v", ours, upstreamPriorities)
	}
}
