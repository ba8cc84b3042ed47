package apiserver

import (
	"net"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// TestDefaultsOnRead: services of Kubernetes before 1.20 have one IP and no family.
func TestDefaultsOnRead(t *testing.T) {
	_, ips, _ := net.ParseCIDR("10.0.0.0/16")
	defaults, err := defaultsOnRead(*ips)
	if err != nil {
		t.Fatal(err)
	}
	for resource := range defaults {
		if !completed[resource] {
			t.Errorf("the watch cache stores %v as served, without what its registry sets", resource)
		}
	}
	old := &api.Service{Spec: api.ServiceSpec{ClusterIP: "10.0.0.1"}}
	defaults[schema.GroupResource{Resource: "services"}](old)
	if s := old.Spec; len(s.ClusterIPs) != 1 || s.ClusterIPs[0] != s.ClusterIP || len(s.IPFamilies) != 1 ||
		s.IPFamilies[0] != api.IPv4Protocol {
		t.Errorf("the service is %+v", s)
	}
	claim := &api.PersistentVolumeClaim{Spec: api.PersistentVolumeClaimSpec{DataSource: &api.TypedLocalObjectReference{
		Kind: "PersistentVolumeClaim", Name: "a"}}}
	defaults[schema.GroupResource{Resource: "persistentvolumeclaims"}](claim)
	if r := claim.Spec.DataSourceRef; r == nil || r.Name != "a" {
		t.Errorf("the claim is %+v", claim.Spec)
	}
}
