package proxy

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

// representations returns in which representations a resource is followed and ready.
func (c *caches) representations(resource string) (all []string) {
	for _, f := range c.followed() {
		if f.resource.Resource == resource && f.reader.Cache().ReadinessCheck() == nil {
			all = append(all, f.format.Representation.String())
		}
	}
	slices.Sort(all)
	return all
}

// Resources that the selection names are followed before anybody reads them, in JSON, and no longer in JSON once
// somebody reads them in another encoding alone. A name that the server does not have is shown.
func TestNamedResourcesAreFollowed(t *testing.T) {
	t.Parallel()
	selection, err := ParseSelection([]string{"configmaps", "deployments.apps", "podz", "widgets.example.com"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newCrowdRig(t, func(c *Config) { c.Cached = selection })
	c := r.proxy.caches
	await.True(t, "all that there is is followed", func() bool {
		return slices.Equal(c.representations("configmaps"), []string{"json"}) &&
			slices.Equal(c.representations("deployments"), []string{"json"}) &&
			len(r.proxy.Status().Unfollowed) == 2
	})
	want := []UnfollowedStatus{
		{"podz", "the server has no resource podz in the core group ('kubectl api-resources -o name' has the names)"},
		{"widgets.example.com", "the server has no resource widgets.example.com"},
	}
	if got := r.proxy.Status().Unfollowed; !slices.Equal(got, want) {
		t.Errorf("not followed: %v", got)
	}
	if page := string(r.proxy.render("page.html")); !strings.Contains(page,
		"<b>podz</b> is to be cached, and is not: the server has no resource podz") {
		t.Errorf("the page: %s", page)
	}
	read := func(accept string) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.serve.URL+"/api/v1/configmaps?resourceVersion=0",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer own")
		q.Header.Set("Accept", accept)
		answer, err := r.serve.Client().Do(q)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(answer, err)
		}
		answer.Body.Close()
	}
	await.True(t, "only protobuf is followed", func() bool {
		read("application/vnd.kubernetes.protobuf")
		return slices.Equal(c.representations("configmaps"), []string{"protobuf"})
	})
	await.True(t, "both are followed", func() bool {
		read("application/json")
		return slices.Equal(c.representations("configmaps"), []string{"json", "protobuf"})
	})
}

// A named resource is followed when its definition comes after the proxy.
func TestNamedResourceOfALaterDefinition(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	selection, err := ParseSelection([]string{"widgets.example.com"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Server: server.Config(), Cached: selection})
	if err != nil {
		t.Fatal(err)
	}
	p.caches.namedRetry = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	await.True(t, "the resource is missing", func() bool { return len(p.Status().Unfollowed) == 1 })
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget",
				"kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object"},
			}}},
		},
	}}
	of := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := client.Resource(of).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it is followed", func() bool {
		return len(p.Status().Unfollowed) == 0 && slices.Equal(p.caches.representations("widgets"), []string{"json"})
	})
}
