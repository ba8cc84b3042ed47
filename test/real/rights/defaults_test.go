package rights

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var writeFlag = flag.String("rights.write-defaults", "",
	"write the roles and bindings of kube-apiserver into this file")

// A test server begins with kube-apiserver's roles and bindings: their labels and annotations, rules and subjects.
func TestDefaultRoles(t *testing.T) {
	sides := newSides(t)
	if *writeFlag != "" {
		if err := os.WriteFile(*writeFlag, linesOf(t, sides[0]), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	real, ours := defaultsOf(t, sides[0]), defaultsOf(t, sides[1])
	if len(real) < 120 {
		t.Fatalf("kube-apiserver has %d roles and bindings: this test reads too early", len(real))
	}
	if diff := cmp.Diff(real, ours); diff != "" {
		t.Errorf("- kube-apiserver, + testserver:\n%s", diff)
	}
}

// defaultsOf returns what is compared of the roles and bindings of a server, by kind and name. Rules of aggregated
// roles are left out: kube-apiserver alone does not write them.
func defaultsOf(t *testing.T, s *side) map[string]any {
	t.Helper()
	ctx, rbac, found := t.Context(), s.admin.RbacV1(), map[string]any{}
	add := func(kind string, m metav1.ObjectMeta, content any) {
		found[kind+" "+m.Namespace+"/"+m.Name] = []any{m.Labels, m.Annotations, content}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	clusterRoles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	check(err)
	for _, o := range clusterRoles.Items {
		if o.AggregationRule != nil {
			add("ClusterRole", o.ObjectMeta, *o.AggregationRule)
			continue
		}
		add("ClusterRole", o.ObjectMeta, sorted(o.Rules))
	}
	roles, err := rbac.Roles("").List(ctx, metav1.ListOptions{})
	check(err)
	for _, o := range roles.Items {
		add("Role", o.ObjectMeta, sorted(o.Rules))
	}
	clusterBindings, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	check(err)
	for _, o := range clusterBindings.Items {
		add("ClusterRoleBinding", o.ObjectMeta, []any{o.RoleRef, o.Subjects})
	}
	bindings, err := rbac.RoleBindings("").List(ctx, metav1.ListOptions{})
	check(err)
	for _, o := range bindings.Items {
		add("RoleBinding", o.ObjectMeta, []any{o.RoleRef, o.Subjects})
	}
	return found
}

// sorted returns rules as texts in order.
func sorted(rules []rbacv1.PolicyRule) []string {
	texts := []string{}
	for _, rule := range rules {
		texts = append(texts, marshal(rule))
	}
	slices.Sort(texts)
	return texts
}

// linesOf returns the roles and bindings of a server, one a line, in the order of their kinds and names.
func linesOf(t *testing.T, s *side) []byte {
	t.Helper()
	var lines []byte
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		answer, err := s.admin.RbacV1().RESTClient().Get().Resource(resource).Do(t.Context()).Raw()
		var list struct {
			Kind  string
			Items []map[string]any
		}
		if err = errors.Join(err, json.Unmarshal(answer, &list)); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for _, o := range list.Items {
			about := o["metadata"].(map[string]any)
			maps.DeleteFunc(about, func(name string, _ any) bool {
				return !slices.Contains([]string{"name", "namespace", "labels", "annotations"}, name)
			})
			o["kind"], o["apiVersion"] = strings.TrimSuffix(list.Kind, "List"), "rbac.authorization.k8s.io/v1"
			lines = append(lines, marshal(o)...)
			lines = append(lines, '\n')
		}
	}
	return lines
}
