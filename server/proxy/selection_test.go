package proxy

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Secrets are cached only if they are named, and what is not to be cached is not, whatever else is given.
func TestSelection(t *testing.T) {
	for _, c := range []struct {
		cache, noCache []string
		want           [4]bool // pods, secrets, deployments.apps, deployments of another group
	}{
		{nil, nil, [4]bool{true, false, true, true}},
		{[]string{"*"}, nil, [4]bool{true, false, true, true}},
		{[]string{"*", "secrets"}, nil, [4]bool{true, true, true, true}},
		{[]string{"secrets"}, nil, [4]bool{false, true, false, false}},
		{[]string{"pods", "deployments.apps"}, nil, [4]bool{true, false, true, false}},
		{nil, []string{"pods"}, [4]bool{false, false, true, true}},
		{[]string{"*", "secrets"}, []string{"deployments.apps"}, [4]bool{true, true, false, true}},
	} {
		s, err := ParseSelection(c.cache, c.noCache)
		if err != nil {
			t.Errorf("%v %v: %v", c.cache, c.noCache, err)
		}
		for i, name := range []string{"pods", "secrets", "deployments.apps", "deployments.example.com"} {
			if got := s.Allows(schema.ParseGroupResource(name)); got != c.want[i] {
				t.Errorf("%v %v: %s: %v", c.cache, c.noCache, name, got)
			}
		}
	}
	if (Selection{}).Allows(secrets) || !(Selection{}).Allows(schema.GroupResource{Resource: "pods"}) {
		t.Error("the zero value is not all but Secrets")
	}
	for _, c := range [][2][]string{
		{{""}}, {{"Pods"}}, {{"pods/log"}}, {{"*.apps"}}, {{"pods."}}, {{".apps"}}, {{"pods nodes"}}, {nil, {"*"}},
		{{"pods"}, {"pods"}},
	} {
		if _, err := ParseSelection(c[0], c[1]); err == nil {
			t.Errorf("%q is accepted", c)
		}
	}
}
