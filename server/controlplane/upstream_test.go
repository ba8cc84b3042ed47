package controlplane_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// UpstreamStorage serves.
func TestUpstreamStorage(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Storage: controlplane.UpstreamStorage}).RESTConfig())
	maps := c.typed.CoreV1().ConfigMaps("default")
	made := must(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{}))(t)
	if listed := must(maps.List(t.Context(), metav1.ListOptions{}))(t); len(listed.Items) == 0 ||
		listed.Items[0].UID != made.UID {
		t.Errorf("listed %v", listed.Items)
	}
}
