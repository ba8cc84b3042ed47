package controlplane_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// The documents of all built-in groups are complete, also if the first requests come at the same time.
// Each names only the kinds of its own group and of v1, as kube-apiserver's.
func TestOpenAPIDocuments(t *testing.T) {
	t.Parallel()
	rest := connect(t, start(t, controlplane.Options{}).RESTConfig()).typed.CoreV1().RESTClient()
	get := func(path string, into any) error {
		raw, err := rest.Get().AbsPath(path).SetHeader("Accept", asJSON).DoRaw(t.Context())
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		return err
	}
	type document struct {
		Paths      map[string]any
		Components struct {
			Schemas map[string]struct {
				Kinds []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
			}
		}
	}
	groups := map[string]string{"apiextensions.k8s.io/v1": "apis/apiextensions.k8s.io/v1"}
	for _, kind := range builtinKinds {
		groups[kind.groupVersion] = "apis/" + kind.groupVersion
	}
	groups["v1"] = "api/v1"
	var list, v2 document
	var all errgroup.Group
	all.Go(func() error { return get("/openapi/v3", &list) })
	all.Go(func() error { return get("/openapi/v2", &v2) })
	for groupVersion, path := range groups {
		all.Go(func() error {
			var d document
			if err := get("/openapi/v3/"+path, &d); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			options := d.Components.Schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"].Kinds
			if groupVersion != "v1" && len(options) != 2 || groupVersion == "v1" && len(options) != 1 {
				t.Errorf("%s: DeleteOptions is of %v", path, options)
			}
			if len(d.Paths) < 2 {
				t.Errorf("%s has the paths %v", path, d.Paths)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, path := range groups {
		if list.Paths[path] == nil {
			t.Errorf("/openapi/v3 does not name %s", path)
		}
	}
	if v2.Paths["/apis/apps/v1/deployments"] == nil {
		t.Error("/openapi/v2 has no deployments")
	}
}

// Servers of a process share schemas. Each builds its documents of them, at the same time as others, and they are
// equal.
func TestOpenAPIDocumentsOfSeveralServers(t *testing.T) {
	t.Parallel()
	var documents [3]map[string]string
	var all errgroup.Group
	for i := range documents {
		rest := connect(t, start(t, controlplane.Options{}).RESTConfig()).typed.CoreV1().RESTClient()
		all.Go(func() error {
			get := func(path string) ([]byte, error) {
				return rest.Get().AbsPath(path).SetHeader("Accept", asJSON).DoRaw(t.Context())
			}
			raw, err := get("/openapi/v3")
			if err != nil {
				return err
			}
			var list struct{ Paths map[string]any }
			if err := json.Unmarshal(raw, &list); err != nil {
				return err
			}
			documents[i] = map[string]string{}
			for path := range list.Paths {
				raw, err := get("/openapi/v3/" + path)
				if err != nil {
					return err
				}
				documents[i][path] = string(raw)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	for path, document := range documents[0] {
		for i := range documents {
			if documents[i][path] != document || len(documents[i]) != len(documents[0]) {
				t.Errorf("server %d has another document of %s", i, path)
			}
		}
	}
	if len(documents[0]) < 10 {
		t.Errorf("only %d documents", len(documents[0]))
	}
}
