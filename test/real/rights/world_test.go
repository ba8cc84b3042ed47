package rights

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settleTimeout bounds the wait until a server knows its roles, which takes some milliseconds.
const settleTimeout = 2 * time.Minute

// world is the roles and bindings of both servers.
type world struct {
	t      *testing.T
	random *rand.Rand
	sides  []*side
	roles  []string // namespace/name, /name for ClusterRoles
	binds  []string
	serial int
}

// identity is a user with groups, besides system:authenticated.
type identity struct {
	name   string
	groups []string
}

func (i identity) key() string { return i.name + " " + strings.Join(i.groups, ",") }

var (
	homes = []string{"default", "one", "two"}
	names = []string{"ann", "bob", "eve", "system:serviceaccount:one:robot", "system:serviceaccount:default:robot",
		"system:serviceaccount:two:other"}
	groups = []string{"readers", "writers", "authors", "system:serviceaccounts:one", "system:nodes"}
	// defaults are roles that both servers have from the start, with the same rules.
	defaults = []string{"cluster-admin", "system:discovery", "system:monitoring", "system:kube-dns",
		"system:controller:job-controller"}
)

func newWorld(t *testing.T, random *rand.Rand) *world {
	w := &world{t: t, random: random, sides: newSides(t)}
	for _, home := range homes[1:] {
		w.both(func(ctx context.Context, s *side) error {
			_, err := s.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}},
				metav1.CreateOptions{})
			return err
		})
	}
	// Authors may write roles, and grant what they have.
	w.create("", "authors", []rbacv1.PolicyRule{{Verbs: []string{"create", "update", "patch", "get"},
		APIGroups: []string{rbacv1.GroupName},
		Resources: []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}}})
	w.bind("", "authors", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "authors"},
		[]rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "authors"}})
	return w
}

// both does something on both servers.
func (w *world) both(do func(context.Context, *side) error) {
	w.t.Helper()
	for _, s := range w.sides {
		if err := do(w.t.Context(), s); err != nil {
			w.t.Fatalf("%s: %v", s.name, err)
		}
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// some returns a random part of what there is, with at least one.
func some(r *rand.Rand, from ...string) []string {
	var out []string
	for _, s := range from {
		if r.IntN(3) == 0 {
			out = append(out, s)
		}
	}
	if out == nil {
		out = []string{pick(r, from)}
	}
	return out
}

var (
	verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate",
		"bind", "escalate"}
	apiGroups = []string{"", "apps", "example.com", rbacv1.GroupName}
	resources = []string{"pods", "deployments", "widgets", "nodes", "users", "roles", "clusterroles", "rolebindings",
		"pods/log", "pods/exec", "deployments/scale"}
	objects = []string{"a", "b", "authors", "ann", "cluster-admin"}
	paths   = []string{"/healthz", "/healthz/etcd", "/metrics", "/logs", "/logs/", "/logs/x", "/version", "/"}
)

// rule is a random rule. Only a cluster-wide one may have paths.
func (w *world) rule(namespaced bool) rbacv1.PolicyRule {
	r := w.random
	if !namespaced && r.IntN(4) == 0 {
		return rbacv1.PolicyRule{Verbs: some(r, "get", "post", "*"), NonResourceURLs: some(r, append(paths, "/logs/*",
			"/healthz*", "/*", "*")...)}
	}
	rule := rbacv1.PolicyRule{
		Verbs: some(r, append(verbs, "*")...), APIGroups: some(r, append(apiGroups, "*")...),
		Resources: some(r, append(resources, "*", "*/log", "*/scale", "pods/*")...),
	}
	if r.IntN(4) == 0 {
		rule.ResourceNames = some(r, objects...)
	}
	return rule
}

func (w *world) rules(namespaced bool) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, w.random.IntN(4))
	for i := range rules {
		rules[i] = w.rule(namespaced)
	}
	return rules
}

// subjects are users, groups and service accounts; those of bindings in a namespace may leave out theirs.
func (w *world) subjects(home string) []rbacv1.Subject {
	r := w.random
	var out []rbacv1.Subject
	for range r.IntN(3) + 1 {
		switch r.IntN(3) {
		case 0:
			out = append(out, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName,
				Name: pick(r, append(groups, "system:authenticated"))})
		case 1:
			namespaces := homes
			if home != "" {
				namespaces = append(slices.Clone(homes), home)
			}
			out = append(out, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: pick(r, namespaces),
				Name: pick(r, []string{"robot", "other"})})
		default:
			out = append(out, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: pick(r, names)})
		}
	}
	return out
}

// ref is a role: one of the namespace, a ClusterRole, a default one, or sometimes one that does not exist.
func (w *world) ref(home string) rbacv1.RoleRef {
	r := w.random
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: pick(r, defaults)}
	switch {
	case r.IntN(8) == 0:
		ref.Name = "missing"
	case r.IntN(6) > 0:
		role := pick(r, w.roles)
		of, name, _ := strings.Cut(role, "/")
		if of != "" && of != home {
			break
		}
		ref.Name = name
		if of != "" {
			ref.Kind = "Role"
		}
	}
	return ref
}

// change creates, changes or deletes a role or a binding on both servers.
func (w *world) change() {
	w.t.Helper()
	r := w.random
	home := pick(r, append(slices.Clone(homes), "", ""))
	switch r.IntN(8) {
	case 0, 1:
		w.create(home, w.name(), w.rules(home != ""))
	case 2, 3, 4:
		w.bind(home, w.name(), w.ref(home), w.subjects(home))
	case 5:
		home, name := split(pick(r, w.roles))
		if name != "authors" {
			w.replace(home, name, w.rules(home != ""))
		}
	case 6:
		if i := r.IntN(len(w.roles)); len(w.roles) > 15 && i > 0 {
			home, name := split(w.roles[i])
			w.roles = slices.Delete(w.roles, i, i+1)
			w.both(func(ctx context.Context, s *side) error {
				if home == "" {
					return s.admin.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
				}
				return s.admin.RbacV1().Roles(home).Delete(ctx, name, metav1.DeleteOptions{})
			})
		}
	default:
		if i := r.IntN(len(w.binds)); len(w.binds) > 25 && i > 0 {
			home, name := split(w.binds[i])
			w.binds = slices.Delete(w.binds, i, i+1)
			w.both(func(ctx context.Context, s *side) error {
				if home == "" {
					return s.admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
				}
				return s.admin.RbacV1().RoleBindings(home).Delete(ctx, name, metav1.DeleteOptions{})
			})
		}
	}
}

func split(key string) (home, name string) {
	home, name, _ = strings.Cut(key, "/")
	return home, name
}

func (w *world) name() string {
	w.serial++
	return fmt.Sprintf("random-%d", w.serial)
}

// create creates a role, or a ClusterRole without a namespace.
func (w *world) create(home, name string, rules []rbacv1.PolicyRule) {
	w.t.Helper()
	of := metav1.ObjectMeta{Name: name}
	w.both(func(ctx context.Context, s *side) (err error) {
		if home == "" {
			_, err = s.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: of, Rules: rules},
				metav1.CreateOptions{})
		} else {
			_, err = s.admin.RbacV1().Roles(home).Create(ctx, &rbacv1.Role{ObjectMeta: of, Rules: rules}, metav1.CreateOptions{})
		}
		return err
	})
	w.roles = append(w.roles, home+"/"+name)
}

func (w *world) replace(home, name string, rules []rbacv1.PolicyRule) {
	w.t.Helper()
	of := metav1.ObjectMeta{Name: name}
	w.both(func(ctx context.Context, s *side) (err error) {
		if home == "" {
			_, err = s.admin.RbacV1().ClusterRoles().Update(ctx, &rbacv1.ClusterRole{ObjectMeta: of, Rules: rules},
				metav1.UpdateOptions{})
		} else {
			_, err = s.admin.RbacV1().Roles(home).Update(ctx, &rbacv1.Role{ObjectMeta: of, Rules: rules}, metav1.UpdateOptions{})
		}
		return err
	})
}

func (w *world) bind(home, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	w.t.Helper()
	of := metav1.ObjectMeta{Name: name}
	w.both(func(ctx context.Context, s *side) (err error) {
		if home == "" {
			_, err = s.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: of, RoleRef: ref,
				Subjects: subjects}, metav1.CreateOptions{})
		} else {
			_, err = s.admin.RbacV1().RoleBindings(home).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: of, RoleRef: ref,
				Subjects: subjects}, metav1.CreateOptions{})
		}
		return err
	})
	w.binds = append(w.binds, home+"/"+name)
}

// settle waits until both servers know all roles and bindings: what is created last of its kind is known last.
func (w *world) settle() {
	w.t.Helper()
	for _, home := range []string{"", "one"} {
		probe := w.name()
		w.create(home, probe, []rbacv1.PolicyRule{{Verbs: []string{"probe"}, APIGroups: []string{"probe"},
			Resources: []string{probe}}})
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: probe}
		if home != "" {
			ref.Kind = "Role"
		}
		w.bind(home, probe, ref, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: probe}})
		w.both(func(ctx context.Context, s *side) error { return s.waitAllowed(ctx, probe) })
	}
}

// waitAllowed waits until a probe's rule is known.
func (s *side) waitAllowed(ctx context.Context, probe string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	question := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: probe,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "one", Verb: "probe", Group: "probe", Resource: probe,
		}}}
	for {
		review, err := s.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			return err
		}
	}
}
