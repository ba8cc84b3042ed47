package columns

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var rbacViews = map[schema.GroupResource]view{
	rbacv1.Resource("rolebindings"): show(
		func(binding *rbacv1.RoleBinding) []any {
			return bindingCells(binding, binding.RoleRef, binding.Subjects)
		},
		bindingColumns(described(rbacv1.RoleBinding{}, "roleRef"))...,
	),
	rbacv1.Resource("clusterrolebindings"): show(
		func(binding *rbacv1.ClusterRoleBinding) []any {
			return bindingCells(binding, binding.RoleRef, binding.Subjects)
		},
		bindingColumns(described(rbacv1.ClusterRoleBinding{}, "roleRef"))...,
	),
}

func bindingColumns(role string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn,
		text("Role", role),
		ageColumn,
		wide(text("Users", "The users that the role is given to.")),
		wide(text("Groups", "The groups that the role is given to.")),
		wide(text("ServiceAccounts", "The service accounts that the role is given to, with their namespaces.")),
	}
}

func bindingCells(binding metav1.Object, role rbacv1.RoleRef, subjects []rbacv1.Subject) []any {
	return []any{
		binding.GetName(), role.Kind + "/" + role.Name, age(binding),
		subjectNames(subjects, rbacv1.UserKind), subjectNames(subjects, rbacv1.GroupKind), subjectNames(subjects,
			rbacv1.ServiceAccountKind),
	}
}

// subjectNames lists the subjects of a kind; service accounts as NAMESPACE/NAME.
func subjectNames(subjects []rbacv1.Subject, kind string) string {
	var names []string
	for _, subject := range subjects {
		switch {
		case subject.Kind != kind:
		case kind == rbacv1.ServiceAccountKind:
			names = append(names, subject.Namespace+"/"+subject.Name)
		default:
			names = append(names, subject.Name)
		}
	}
	return strings.Join(names, ", ")
}
