package controlplane

import (
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
)

// mergedDiscovery is the extension server's view of the discovery documents. The aggregated document
// is shared with the front server. The list at /apis is the front server's own; mergedDiscovery adds
// the extension server's groups to it.
type mergedDiscovery struct {
	aggregated.ResourceManager
	groups *groupList
}

// groupList has the versions of the groups that the extension server adds.
type groupList struct {
	// builtin are groups of the front server. A custom kind in one of them isn't reachable, as in
	// kube-apiserver, and must not hide the group.
	builtin []string

	mu       sync.Mutex
	front    discovery.GroupManager
	versions map[string][]string
}

func newMergedDiscovery(shared aggregated.ResourceManager, builtin []string) mergedDiscovery {
	return mergedDiscovery{ResourceManager: shared, groups: &groupList{builtin: builtin, versions: map[string][]string{}}}
}

// attach adds the known groups, and later changes, to the front server's list.
func (g *groupList) attach(front discovery.GroupManager) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.front = front
	for group := range g.versions {
		g.publish(group)
	}
}

func (d mergedDiscovery) WithSource(source aggregated.Source) aggregated.ResourceManager {
	return mergedDiscovery{d.ResourceManager.WithSource(source), d.groups}
}

// AddGroupVersion changes the aggregated document last, so who finds a version there finds it in the other documents,
// too.
func (d mergedDiscovery) AddGroupVersion(group string, value apidiscoveryv2.APIVersionDiscovery) {
	d.groups.change(group, func(versions []string) []string {
		if slices.Contains(versions, value.Version) {
			return versions
		}
		return append(versions, value.Version)
	})
	d.ResourceManager.AddGroupVersion(group, value)
}

func (d mergedDiscovery) RemoveGroupVersion(gv metav1.GroupVersion) {
	d.ResourceManager.RemoveGroupVersion(gv)
	d.groups.change(gv.Group, func(versions []string) []string {
		return slices.DeleteFunc(versions, func(v string) bool { return v == gv.Version })
	})
}

func (d mergedDiscovery) RemoveGroup(group string) {
	d.ResourceManager.RemoveGroup(group)
	d.groups.change(group, func([]string) []string { return nil })
}

// change edits the versions of a group and publishes the result.
func (g *groupList) change(group string, edit func([]string) []string) {
	if slices.Contains(g.builtin, group) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.versions[group] = edit(g.versions[group])
	if g.front != nil {
		g.publish(group)
	}
}

// publish adds a group to the list, its most stable version first, or removes one without versions.
// The caller holds the lock.
func (g *groupList) publish(group string) {
	versions := slices.Clone(g.versions[group])
	if len(versions) == 0 {
		delete(g.versions, group)
		g.front.RemoveGroup(group)
		return
	}
	slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	listed := metav1.APIGroup{Name: group}
	for _, v := range versions {
		listed.Versions = append(listed.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: schema.GroupVersion{Group: group, Version: v}.String(),
			Version:      v,
		})
	}
	listed.PreferredVersion = listed.Versions[0]
	g.front.AddGroup(listed)
}
