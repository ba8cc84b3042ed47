package controlplane

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

// measure reads the figures, and stops the components: nothing is written afterwards.
func (s *story) measure(ctx context.Context) error {
	s.figures.total = time.Since(s.began)
	if err := s.figures.add(ctx, s.cluster); err != nil {
		return err
	}
	etcd, err := s.cluster.Etcd().Metrics(ctx)
	if err != nil {
		return err
	}
	s.figures.etcdCPU = etcd.Sum("process_cpu_seconds_total", nil)
	s.cluster.StopComponents()
	return nil
}

// verify compares the objects with each other and with the informers, which ran during the whole story.
func (s *story) verify(ctx context.Context) error {
	all, err := listAll(ctx, s.config)
	if err != nil {
		return err
	}
	if err := all.check(); err != nil {
		return err
	}
	return s.wait(ctx, func(now state) string { return cmp.Diff(all.versions(informedResources), now.versions()) })
}

// compareReads starts an API server with Kubernetes' own watch cache on the same etcd, and compares what
// both read. Only leases may differ, which API servers themselves renew.
func (s *story) compareReads(ctx context.Context, t *testing.T) error {
	upstream := peer.KeepwatchAPIServerOn(t, s.cluster.Etcd(), "--reads=upstream")
	return poll(ctx, pollInterval, func() string {
		ours, err := listAll(ctx, s.config)
		if err != nil {
			return err.Error()
		}
		theirs, err := listAll(ctx, upstream.Config())
		if err != nil {
			return err.Error()
		}
		return ours.difference(theirs)
	})
}

// objects are all objects of all resources, by resource and key.
type objects map[schema.GroupResource]map[string]*unstructured.Unstructured

// listAll lists every resource in its preferred version.
func listAll(ctx context.Context, config *rest.Config) (objects, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "", ""
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := discover.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	all := objects{}
	for _, group := range groups {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") {
				continue
			}
			list, err := client.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
			byKey := map[string]*unstructured.Unstructured{}
			for i := range list.Items {
				byKey[key(&list.Items[i])] = &list.Items[i]
			}
			all[gv.WithResource(r.Name).GroupResource()] = byKey
		}
	}
	return all, nil
}

// check returns an error if an owner or a namespace does not exist, or an object is being deleted.
func (all objects) check() error {
	exists := map[types.UID]bool{}
	for _, byKey := range all {
		for _, o := range byKey {
			exists[o.GetUID()] = true
		}
	}
	namespaces := all[schema.GroupResource{Resource: "namespaces"}]
	for resource, byKey := range all {
		for name, o := range byKey {
			for _, owner := range o.GetOwnerReferences() {
				if !exists[owner.UID] {
					return fmt.Errorf("%v %s: the owner %s %s does not exist", resource, name, owner.Kind, owner.Name)
				}
			}
			if o.GetDeletionTimestamp() != nil {
				return fmt.Errorf("%v %s is being deleted", resource, name)
			}
			if ns := o.GetNamespace(); ns != "" && namespaces["/"+ns] == nil {
				return fmt.Errorf("%v %s: the namespace does not exist", resource, name)
			}
		}
	}
	return nil
}

// difference describes one object that others have differently.
func (all objects) difference(others objects) string {
	delete(all, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
	delete(others, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
	if len(all) != len(others) {
		return fmt.Sprintf("%d resources, %d with upstream's reads", len(all), len(others))
	}
	for resource, byKey := range all {
		if len(byKey) != len(others[resource]) {
			return fmt.Sprintf("%d %v, %d with upstream's reads", len(byKey), resource, len(others[resource]))
		}
		for name, o := range byKey {
			if other := others[resource][name]; !reflect.DeepEqual(o, other) {
				return fmt.Sprintf("%v %s: %s", resource, name, cmp.Diff(other, o))
			}
		}
	}
	return ""
}

// versions returns the resource versions of the objects of some resources.
func (all objects) versions(of []schema.GroupResource) map[string]string {
	versions := map[string]string{}
	for _, resource := range of {
		for name, o := range all[resource] {
			versions[resource.Resource+" "+name] = o.GetResourceVersion()
		}
	}
	return versions
}
