package rbac

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// subjectOf returns the first subject that names a user. namespace is the binding's; empty for a ClusterRoleBinding.
func subjectOf(subjects []rbacv1.Subject, u user.Info, namespace string) (rbacv1.Subject, bool) {
	i := slices.IndexFunc(subjects, func(s rbacv1.Subject) bool { return names(s, u, namespace) })
	if i < 0 {
		return rbacv1.Subject{}, false
	}
	return subjects[i], true
}

// names reports whether a subject names a user.
func names(s rbacv1.Subject, u user.Info, namespace string) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return u.GetName() == s.Name
	case rbacv1.GroupKind:
		return slices.Contains(u.GetGroups(), s.Name)
	case rbacv1.ServiceAccountKind:
		in := cmp.Or(s.Namespace, namespace)
		return in != "" && serviceaccount.MatchesUsername(in, s.Name, u.GetName())
	default:
		return false
	}
}
