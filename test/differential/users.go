package differential

import (
	"context"
	"fmt"
	"net/url"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// user is a user that requests impersonate. Their permissions are in roles, except those of a node:
// it may list the pods of its own name only, by a field selector.
type user struct {
	name  string
	group string
	// selects is the field selector without which most lists of the user are forbidden.
	selects string
}

var users = []user{
	{name: "reader-of-one"},
	{name: "reader-of-names", selects: "metadata.name=pod-03"},
	{name: "system:node:node-01", group: "system:nodes", selects: "spec.nodeName=node-01"},
	{name: "without-permissions"},
}

// permit creates the roles of users.
func permit(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	reads := []string{"get", "list", "watch"}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: users[0].name, Namespace: namespaces[0]},
		Rules:      []rbacv1.PolicyRule{{Verbs: reads, APIGroups: []string{"", "apps", group}, Resources: []string{"*"}}},
	}
	named := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: users[1].name},
		Rules: []rbacv1.PolicyRule{{Verbs: reads, APIGroups: []string{"", group}, Resources: []string{"pods",
			"configmaps", "widgets"}, ResourceNames: []string{"pod-03", "configmap-03"}}},
	}
	subject := func(u user) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u.name}}
	}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	rbac := client.RbacV1()
	if _, err := rbac.Roles(role.Namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := rbac.ClusterRoles().Create(ctx, named, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := rbac.RoleBindings(role.Namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta,
		Subjects: subject(users[0]), RoleRef: ref("Role", role.Name)}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: named.ObjectMeta,
		Subjects: subject(users[1]), RoleRef: ref("ClusterRole", named.Name)}, metav1.CreateOptions{})
	return err
}

// permitted waits until a server knows the permissions of users. It asks for lists: objects come and go.
func (s *Side) permitted(ctx context.Context) error {
	for _, u := range users[:2] {
		options := url.Values{}
		if u.selects != "" {
			options.Set("fieldSelector", u.selects)
		}
		if err := s.answers(ctx, Request{Path: podResource.collection(namespaces[0]), Options: options,
			User: u}); err != nil {
			return fmt.Errorf("%s: %w", u.name, err)
		}
	}
	return nil
}

// as makes a request that of a user.
func (g *Generator) as(r *Request) {
	r.User = pick(g.random, users...)
	if r.User.selects != "" && !g.chance(4) {
		r.Options.Set("fieldSelector", r.User.selects)
	}
}
