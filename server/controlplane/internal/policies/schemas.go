package policies

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
)

// Client is a client for the plugins. A plugin requests the list of all schemas every few seconds, from before the
// server answers, and the first request makes the server build all of them. Here the list is known without a request.
type Client struct {
	kubernetes.Interface
	// Versions returns the versions of all groups that are served.
	Versions func() []schema.GroupVersion
}

// Discovery returns a client with such a list.
func (c Client) Discovery() discovery.DiscoveryInterfaces {
	return schemaDiscovery{c.Interface.Discovery(), c.Versions}
}

type schemaDiscovery struct {
	discovery.DiscoveryInterfaces
	versions func() []schema.GroupVersion
}

func (d schemaDiscovery) OpenAPIV3() openapi.Client {
	return schemaList{d.DiscoveryInterfaces.OpenAPIV3(), d.versions}
}

type schemaList struct {
	server   openapi.Client
	versions func() []schema.GroupVersion
}

// Paths returns the schemas by their path. Each is requested when it is first used.
func (l schemaList) Paths() (map[string]openapi.GroupVersion, error) {
	paths := map[string]openapi.GroupVersion{}
	current := sync.OnceValues(l.server.Paths)
	for _, gv := range l.versions() {
		path := "apis/" + gv.String()
		if gv.Group == "" {
			path = "api/" + gv.Version
		}
		paths[path] = schemaOf{path, current}
	}
	return paths, nil
}

// schemaOf is the schema of a group and version, as it is when the first of its list is requested.
type schemaOf struct {
	path    string
	current func() (map[string]openapi.GroupVersion, error)
}

func (s schemaOf) Schema(contentType string) ([]byte, error) {
	paths, err := s.current()
	if err != nil {
		return nil, err
	}
	found := paths[s.path]
	if found == nil {
		return nil, fmt.Errorf("no schemas of %s", s.path)
	}
	return found.Schema(contentType)
}

// ServerRelativeURL returns the address of the schema, which has a hash of it, or an empty text if there is none.
func (s schemaOf) ServerRelativeURL() string {
	paths, _ := s.current()
	if found := paths[s.path]; found != nil {
		return found.ServerRelativeURL()
	}
	return ""
}
