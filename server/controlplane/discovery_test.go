package controlplane

import (
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
)

// groupsShown stands for the front server's list at /apis.
type groupsShown struct {
	discovery.GroupManager
	groups map[string]metav1.APIGroup
}

func (g groupsShown) AddGroup(group metav1.APIGroup) { g.groups[group.Name] = group }
func (g groupsShown) RemoveGroup(name string)        { delete(g.groups, name) }

// Versions of custom groups appear in the list at /apis; they do not hide a built-in group.
func TestGroupsOfCustomKinds(t *testing.T) {
	shown := groupsShown{groups: map[string]metav1.APIGroup{"batch": {Name: "batch"}}}
	merged := newMergedDiscovery(aggregated.NewResourceManager("apis"), builtin.Groups())
	custom := merged.WithSource(aggregated.CRDSource)
	add := func(group, version string) {
		custom.AddGroupVersion(group, apidiscoveryv2.APIVersionDiscovery{Version: version})
	}
	add("example.com", "v1beta1") // before the front server exists
	merged.groups.attach(shown)
	add("example.com", "v1")
	add("example.com", "v1")
	if got := shown.groups["example.com"]; len(got.Versions) != 2 || got.PreferredVersion.Version != "v1" {
		t.Errorf("the group is %v", got)
	}
	custom.RemoveGroupVersion(metav1.GroupVersion{Group: "example.com", Version: "v1"})
	if got := shown.groups["example.com"]; len(got.Versions) != 1 ||
		got.PreferredVersion.GroupVersion != "example.com/v1beta1" {
		t.Errorf("the group is %v", got)
	}
	custom.RemoveGroup("example.com")
	if got, ok := shown.groups["example.com"]; ok {
		t.Errorf("the group is still %v", got)
	}
	add("batch", "v9")
	custom.RemoveGroup("batch")
	if got := shown.groups["batch"]; got.Name != "batch" || len(got.Versions) != 0 {
		t.Errorf("the built-in group became %v", got)
	}
}
