package operator

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// api is where an operator writes: the seam towards a server.
type api interface {
	// patch sends a request about the object that a state is of, and returns the state
	// that it has made.
	patch(ctx context.Context, state map[string]any, r write.Request) (*unstructured.Unstructured, error)
	// get reads the newest state of the object that a state is of.
	get(ctx context.Context, state map[string]any) (*unstructured.Unstructured, error)
}

// server is the api of a Kubernetes API server.
type server struct {
	client     dynamic.NamespaceableResourceInterface
	namespaced bool
	manager    string // owns the fields; at most 128 bytes
}

func newServer(client dynamic.Interface, k kind, prefix string) *server {
	return &server{client.Resource(k.resource), k.namespaced, prefix[:min(len(prefix), 128)]}
}

func (s *server) patch(ctx context.Context, state map[string]any, r write.Request) (*unstructured.Unstructured, error) {
	var subresources []string
	if r.Subresource != "" {
		subresources = append(subresources, r.Subresource)
	}
	return s.in(state).Patch(ctx, text(state, "name"), r.Type, r.Body, metav1.PatchOptions{FieldManager: s.manager}, subresources...)
}

func (s *server) get(ctx context.Context, state map[string]any) (*unstructured.Unstructured, error) {
	return s.in(state).Get(ctx, text(state, "name"), metav1.GetOptions{})
}

func (s *server) in(state map[string]any) dynamic.ResourceInterface {
	if s.namespaced {
		return s.client.Namespace(text(state, "namespace"))
	}
	return s.client
}
