package operator

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// api is the operator's interface for requests about single objects.
type api interface {
	// patch sends a request for the object of a state. It returns the new state's metadata,
	// as far as patches depend on them, and its status.
	patch(ctx context.Context, state map[string]any, r write.Request) (*unstructured.Unstructured, error)
	// get reads the newest state of the object of a state.
	get(ctx context.Context, state map[string]any) (*unstructured.Unstructured, error)
	// hasStatus reports whether the status has an endpoint of its own now: the resource's definition may have changed.
	hasStatus(ctx context.Context) (bool, error)
}

// server is the api of a Kubernetes API server.
type server struct {
	client    *rest.RESTClient
	discovery apiServer
	kind      kind
	manager   string // owns the fields; at most 128 bytes
}

func newServer(cfg *rest.Config, client *http.Client, discovery apiServer, k kind, prefix string) (*server, error) {
	cfg = rest.CopyConfig(cfg)
	version := k.resource.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &version, "/apis"
	if version.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	made, err := rest.RESTClientForConfigAndClient(cfg, client)
	return &server{made, discovery, k, prefix[:min(len(prefix), 128)]}, err
}

func (s *server) hasStatus(ctx context.Context) (bool, error) {
	k, err := lookIn(ctx, s.discovery, s.kind.resource.GroupVersion(), s.kind.resource.Resource)
	return k.subresource, err
}

func (s *server) patch(ctx context.Context, state map[string]any, r write.Request) (*unstructured.Unstructured, error) {
	request := s.objectRequest(s.client.Patch(r.Type), state).Param("fieldManager", s.manager).Body(r.Body)
	if r.Subresource != "" {
		request.SubResource(r.Subresource)
	}
	text, err := responseBody(request.Do(ctx))
	if err != nil {
		return nil, err
	}
	return decodeMetadata(text)
}

// decodeMetadata decodes the result of patch. The informer delivers the rest.
func decodeMetadata(text []byte) (*unstructured.Unstructured, error) {
	var answer struct {
		Metadata struct {
			Name            string         `json:"name"`
			Namespace       string         `json:"namespace"`
			UID             string         `json:"uid"`
			ResourceVersion string         `json:"resourceVersion"`
			Finalizers      []any          `json:"finalizers"`
			Annotations     map[string]any `json:"annotations"`
		} `json:"metadata"`
		Status map[string]any `json:"status"`
	}
	if err := utiljson.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("decode the answer to a patch: %w", err)
	}
	m := answer.Metadata
	about := map[string]any{"name": m.Name, "uid": m.UID, "resourceVersion": m.ResourceVersion}
	if m.Namespace != "" {
		about["namespace"] = m.Namespace
	}
	if len(m.Finalizers) > 0 {
		about["finalizers"] = m.Finalizers
	}
	if len(m.Annotations) > 0 {
		about["annotations"] = m.Annotations
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": about, "status": answer.Status}}, nil
}

func (s *server) get(ctx context.Context, state map[string]any) (*unstructured.Unstructured, error) {
	text, err := responseBody(s.objectRequest(s.client.Get(), state).Do(ctx))
	if err != nil {
		return nil, err
	}
	u := new(unstructured.Unstructured)
	return u, u.UnmarshalJSON(text)
}

// responseBody returns the body of an answer, or its Status as an error.
func responseBody(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}

// objectRequest completes a request with the object of a state.
func (s *server) objectRequest(r *rest.Request, state map[string]any) *rest.Request {
	return r.NamespaceIfScoped(text(state, "namespace"),
		s.kind.namespaced).Resource(s.kind.resource.Resource).Name(text(state, "name"))
}
