package controlplane

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"github.com/keepwatch/keepwatch/controlplane/builtin"
)

// The end of etcd is an error for its owner, and not the end of the process.
func TestEtcdCannotEndTheProcess(t *testing.T) {
	for name, end := range map[string]func(*zap.Logger){
		"fatal": func(l *zap.Logger) { l.Fatal("no way on", zap.Error(errors.New("disk\nbroken"))) },
		"panic": func(l *zap.Logger) { l.Panic("no way on", zap.Error(errors.New("disk\nbroken"))) },
	} {
		t.Run(name, func(t *testing.T) {
			log := newEtcdLog()
			log.zap().Error("this is retried")
			if log.failed.Err() != nil {
				t.Fatal("an error that isn't fatal ends etcd")
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				end(log.zap())
				t.Error("the goroutine goes on after the end")
			}()
			<-ended
			log.fail(errors.New("a later one"))
			if got := context.Cause(log.failed).Error(); got != "no way on: disk broken" {
				t.Errorf("the cause is %q", got)
			}
		})
	}
}

// groupsShown is the list at /apis.
type groupsShown struct {
	discovery.GroupManager
	groups map[string]metav1.APIGroup
}

func (g groupsShown) AddGroup(group metav1.APIGroup) { g.groups[group.Name] = group }
func (g groupsShown) RemoveGroup(name string)        { delete(g.groups, name) }

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
	if got := shown.groups["example.com"]; len(got.Versions) != 1 || got.PreferredVersion.GroupVersion != "example.com/v1beta1" {
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
