package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// resource is what the server says of a resource.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	listKind   string
	namespaced bool
	dynamic    bool   // see readpath.Resource.Dynamic
	warning    string // that the server sends with each response
}

// maxDescription bounds a response that describes a resource.
const maxDescription = 64 << 20

// describer asks the server what a resource is.
type describer struct {
	client *http.Client // with the proxy's identity
	server *url.URL
}

// describe returns what the server says of a resource. It fails if the resource can't be listed and watched,
// and if the proxy may not list it.
func (d describer) describe(ctx context.Context, of schema.GroupVersionResource) (*resource, error) {
	r := &resource{GroupVersionResource: of}
	path := "/apis/" + of.Group + "/" + of.Version
	if of.Group == "" {
		path = "/api/" + of.Version
	}
	if err := d.discover(ctx, path, r); err != nil {
		return nil, err
	}
	return r, d.inspect(ctx, path, r)
}

// discover reads the kind and the scope.
func (d describer) discover(ctx context.Context, path string, r *resource) error {
	body, _, err := d.get(ctx, path, nil)
	if err != nil {
		return err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("the description of %s: %w", r.GroupVersion(), err)
	}
	i := slices.IndexFunc(list.APIResources, func(known metav1.APIResource) bool { return known.Name == r.Resource })
	if i < 0 {
		return fmt.Errorf("the server has no resource %s", r.GroupVersionResource)
	}
	known := list.APIResources[i]
	for _, verb := range []string{"get", "list", "watch"} {
		if !slices.Contains(known.Verbs, verb) {
			return fmt.Errorf("the server has no %s of %s", verb, r.GroupVersionResource)
		}
	}
	r.kind, r.namespaced = r.GroupVersion().WithKind(known.Kind), known.Namespaced
	return nil
}

// inspect reads how the server writes a list: a built-in kind names its kind first, a custom resource has its
// members in alphabetical order.
func (d describer) inspect(ctx context.Context, path string, r *resource) error {
	body, header, err := d.get(ctx, path+"/"+r.Resource, url.Values{"limit": {"1"}})
	if err != nil {
		return err
	}
	var list metav1.TypeMeta
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("a list of %s: %w", r.GroupVersionResource, err)
	}
	r.listKind = list.Kind
	switch {
	case bytes.HasPrefix(body, []byte(`{"kind":`)):
	case bytes.HasPrefix(body, []byte(`{"apiVersion":`)):
		r.dynamic = true
	default:
		return fmt.Errorf("a list of %s begins in an unknown way", r.GroupVersionResource)
	}
	warnings, _ := utilnet.ParseWarningHeaders(header.Values("Warning"))
	switch len(warnings) {
	case 0:
	case 1:
		r.warning = warnings[0].Text
	default:
		return fmt.Errorf("the server sends %d warnings with %s", len(warnings), r.GroupVersionResource)
	}
	return nil
}

// get returns the server's response to a GET.
func (d describer) get(ctx context.Context, path string, query url.Values) ([]byte, http.Header, error) {
	to := *d.server
	to.Path, to.RawQuery = joinPath(d.server.Path, path), query.Encode()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	q.Header.Set("Accept", "application/json")
	response, err := d.client.Do(q)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDescription))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return body, response.Header, err
}
