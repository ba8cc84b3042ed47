package proxy

import (
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
)

// ClusterRole returns what a proxy's identity needs in order to cache resources: it has one rule for each group of
// them, and those for reviews, for the changes of roles, for what is an aggregated API, for the columns of custom
// resources, for the priority levels, for the cluster's identity and for the proxy's page. Resources that the selection
// does not allow have none.
func ClusterRole(name string, of Selection, resources []schema.GroupResource) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"},
				Verbs: []string{"create"}},
			{
				APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterrolebindings", "clusterroles", "rolebindings",
					"roles"},
				Verbs: []string{"list", "watch"},
			},
			{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"get"}},
			{ // the columns of custom resources
				APIGroups: []string{apiextensionsv1.GroupName}, Resources: []string{"customresourcedefinitions"},
				Verbs: []string{"get", "list", "watch"},
			},
			{ // who is served first when many ask
				APIGroups: []string{flowcontrolv1.GroupName}, Resources: []string{"flowschemas", "prioritylevelconfigurations"},
				Verbs: []string{"list", "watch"},
			},
			{ // the identity of the cluster, for the index on disk
				APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem},
				Verbs: []string{"get"},
			},
			{NonResourceURLs: []string{"/keepwatch", "/keepwatch/*"}, Verbs: []string{"get"}}, // the page, and keepwatch top
		},
	}
	allowed := slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupResource) bool { return !of.Allows(r) })
	slices.SortFunc(allowed, compareResources)
	var last *rbacv1.PolicyRule
	for _, r := range slices.Compact(allowed) {
		if last == nil || last.APIGroups[0] != r.Group {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Verbs: []string{"get", "list",
				"watch"}})
			last = &role.Rules[len(role.Rules)-1]
		}
		last.Resources = append(last.Resources, r.Resource)
	}
	return role
}

// ImpersonationRules returns what a proxy's identity needs beside [ClusterRole] for [Config].Impersonate. With these
// rules it can act as any user.
func ImpersonationRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{access.Authorities},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"groups", "serviceaccounts", "users"}, Verbs: []string{"impersonate"}},
		{ // uids, and userextras with every subresource, for which rules have no pattern
			APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"impersonate"},
		},
	}
}

// PersonalRules returns what a proxy's identity needs beside [ClusterRole] for [Config].Personal: the namespaces, and
// whether the server decides by roles alone. Everybody has the latter by system:basic-user, unless that was changed.
func PersonalRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectrulesreviews"},
			Verbs: []string{"create"}},
	}
}
