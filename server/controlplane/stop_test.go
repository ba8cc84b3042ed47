package controlplane_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// Open watches, read or not, end with the server and do not delay its end.
func TestStopsWithOpenWatches(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{})
	c := connect(t, server.RESTConfig())
	read := must(c.typed.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{}))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range read.ResultChan() {
		}
	}()
	for range 20 {
		idle := must(c.typed.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{}))(t)
		defer idle.Stop()
	}
	server.stop()
	<-ended
}

// Run returns nil when its context is done during the start.
func TestStopsDuringStart(t *testing.T) {
	t.Parallel()
	server := must(controlplane.New(controlplane.Options{}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := server.Run(ctx); err != nil {
		t.Errorf("Run returned: %v", err)
	}
	if err := server.Run(context.Background()); err == nil {
		t.Error("a server runs twice")
	}
	if server.RESTConfig() != nil || server.DataDir() != "" {
		t.Error("a server that was never ready has an address")
	}
}

// A violated invariant of a storage, also of a custom resource, stops the server with the cause: it can
// no longer answer reads of the resource.
func TestInvariantViolationStopsTheServer(t *testing.T) {
	t.Parallel()
	for _, custom := range []bool{false, true} {
		server := start(t, controlplane.Options{})
		c := connect(t, server.RESTConfig())
		resource := corev1.SchemeGroupVersion.WithResource("configmaps")
		object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
		if custom {
			resource = newCRD(t, c, "violated")
			object["apiVersion"], object["kind"] = resource.GroupVersion().String(), "Violated"
		}
		objects := c.dynamic.Resource(resource).Namespace("default")
		await.State(t, "a list is answered", func() (bool, string) {
			_, err := objects.List(t.Context(), metav1.ListOptions{})
			return err == nil, fmt.Sprint(err)
		})
		await.State(t, "the invariant is violated", func() (bool, string) {
			err := server.ViolateInvariant(resource)
			return err == nil, fmt.Sprint(err)
		})
		if _, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: object},
			metav1.CreateOptions{}); err != nil {
			t.Logf("the write was answered: %v", err) // the server may have ended
		}
		select {
		case err := <-server.ended:
			server.ended <- nil
			if err == nil || !strings.HasPrefix(err.Error(), "the storage of "+resource.GroupResource().String()+" stopped: ") {
				t.Errorf("the server ended with: %v", err)
			}
		case <-time.After(await.Deadline):
			t.Fatalf("the server continues without the storage of %s", resource.Resource)
		}
	}
}
