package proxy

import (
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/server/proxy"
)

// printRights writes the ClusterRole that the proxy's identity needs. Unless the selection names everything that is to
// be cached, it asks the cluster what there is.
func (o *settings) printRights(selection proxy.Selection, stdout, stderr io.Writer) error {
	resources, only := selection.Named()
	if !only {
		served, err := o.servedResources(stderr)
		if err != nil {
			return fmt.Errorf(
				"can't read the resource types of the cluster, which --print-rbac needs unless --cache names them all: %w", err)
		}
		resources = append(resources, served...)
	}
	role := proxy.ClusterRole("keepwatch-proxy", selection, resources)
	if o.impersonate {
		role.Rules = append(role.Rules, proxy.ImpersonationRules()...)
	}
	if o.personalViews() != nil {
		role.Rules = append(role.Rules, proxy.PersonalRules()...)
	}
	text, err := yaml.Marshal(role)
	if err != nil {
		return err
	}
	_, err = stdout.Write(text)
	return err
}

// servedResources returns the resources of the cluster that can be read, listed and watched.
func (o *settings) servedResources(stderr io.Writer) ([]schema.GroupResource, error) {
	if _, err := cluster.Connection(o.config); err != nil {
		return nil, err
	}
	client, err := o.config.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	groups, err := discovery.ServerPreferredResources(client)
	if err != nil && len(groups) == 0 {
		return nil, err
	}
	if err != nil {
		fmt.Fprintf(stderr, "keepwatch: some resource types are missing in the ClusterRole: %v\n", err)
	}
	var served []schema.GroupResource
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range group.APIResources {
			if !slices.ContainsFunc([]string{"get", "list", "watch"}, func(verb string) bool {
				return !slices.Contains(r.Verbs, verb)
			}) {
				served = append(served, version.WithResource(r.Name).GroupResource())
			}
		}
	}
	return served, nil
}
