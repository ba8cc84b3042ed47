package controlplane_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// rbacServer is a server with RBAC: the administrator's clients, and a client for each user.
type rbacServer struct {
	*running
	admin clients
}

func startRBAC(t *testing.T, options controlplane.Options) rbacServer {
	t.Helper()
	options.Authorization = controlplane.RBAC
	server := start(t, options)
	return rbacServer{server, connect(t, server.RESTConfig())}
}

// as returns a client of a user.
func (s rbacServer) as(t *testing.T, name string, groups ...string) kubernetes.Interface {
	t.Helper()
	return must(kubernetes.NewForConfig(must(s.UserConfig(name, groups...))(t)))(t)
}

// grantTo creates a role of rules in a namespace, or a ClusterRole without one, and binds it to a subject. It returns
// when the server knows both.
func (s rbacServer) grantTo(t *testing.T, namespace, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	of := metav1.ObjectMeta{Name: name}
	rbac := s.admin.typed.RbacV1()
	if namespace == "" {
		must(rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: of, Rules: rules},
			metav1.CreateOptions{}))(t)
		must(rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: of, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
				Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{}))(t)
	} else {
		must(rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: of, Rules: rules}, metav1.CreateOptions{}))(t)
		must(rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: of, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
				Kind: "Role", Name: name},
		}, metav1.CreateOptions{}))(t)
	}
	s.waitKnown(t)
}

// waitKnown waits until the server knows all roles and bindings: a role and a binding that are created last are known
// last of their kind.
func (s rbacServer) waitKnown(t *testing.T) {
	t.Helper()
	rbac, ctx := s.admin.typed.RbacV1(), t.Context()
	probe := metav1.ObjectMeta{GenerateName: "probe-"}
	rule := rbacv1.PolicyRule{Verbs: []string{"probe"}, APIGroups: []string{"probe"}, Resources: []string{"probes"}}
	namespaced := must(rbac.Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: probe, Rules: []rbacv1.PolicyRule{rule}},
		metav1.CreateOptions{}))(t)
	role := must(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: probe, Rules: []rbacv1.PolicyRule{rule}},
		metav1.CreateOptions{}))(t)
	known := func(kind, role, user string, bind func(rbacv1.RoleRef, []rbacv1.Subject)) {
		bind(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
			[]rbacv1.Subject{{Kind: "User", Name: user, APIGroup: rbacv1.GroupName}})
		await.State(t, "the roles are known", func() (bool, string) {
			return s.may(t, user, nil, authorizationv1.ResourceAttributes{Namespace: "default", Verb: "probe", Group: "probe",
				Resource: "probes"}), "not yet"
		})
	}
	known("ClusterRole", role.Name, role.Name, func(ref rbacv1.RoleRef, who []rbacv1.Subject) {
		must(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: probe, RoleRef: ref,
			Subjects: who}, metav1.CreateOptions{}))(t)
	})
	known("Role", namespaced.Name, namespaced.Name, func(ref rbacv1.RoleRef, who []rbacv1.Subject) {
		must(rbac.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: probe, RoleRef: ref, Subjects: who},
			metav1.CreateOptions{}))(t)
	})
}

// may asks the server whether a user may send a request.
func (s rbacServer) may(t *testing.T, user string, groups []string, request authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		Groups: groups, ResourceAttributes: &request}}
	return must(s.admin.typed.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review,
		metav1.CreateOptions{}))(t).Status.Allowed
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func rule(verbs, resources string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: []string{"", "apps", rbacv1.GroupName},
		Resources: strings.Split(resources, ",")}
}

// A user may do what roles allow, and nothing else; the administrator may do everything.
func TestRBACDecidesAboutRequests(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	ctx := t.Context()
	s.grantTo(t, "default", "reader", user("jane"), rule("get,list,watch", "configmaps"))
	must(s.admin.typed.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{}))(t)
	jane := s.as(t, "jane", "staff")
	must(jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}))(t)
	must(jane.CoreV1().ConfigMaps("default").Get(ctx, "m", metav1.GetOptions{}))(t)
	must(jane.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{}))(t).Stop()
	for what, err := range map[string]error{
		`configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "kube-system"`:          second(jane.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{})),
		`configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" at the cluster scope`:                    second(jane.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})),
		`configmaps "m" is forbidden: User "jane" cannot delete resource "configmaps" in API group "" in the namespace "default"`:        jane.CoreV1().ConfigMaps("default").Delete(ctx, "m", metav1.DeleteOptions{}),
		`secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace "default"`:                    second(jane.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})),
		`pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default"`: second(s.impersonating(t, "jane", "eve").CoreV1().Pods("default").List(ctx, metav1.ListOptions{})),
	} {
		if !apierrors.IsForbidden(err) || err.Error() != what {
			t.Errorf("got  %v\nwant %s", err, what)
		}
	}
	if err := s.admin.typed.RbacV1().RoleBindings("default").Delete(ctx, "reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "a right ends with its binding", func() (bool, string) {
		_, err := jane.CoreV1().ConfigMaps("default").Get(ctx, "m", metav1.GetOptions{})
		return apierrors.IsForbidden(err), "jane reads"
	})
}

func second[T any](_ T, err error) error { return err }

// impersonating returns a client of a user who acts as another one.
func (s rbacServer) impersonating(t *testing.T, name, other string) kubernetes.Interface {
	t.Helper()
	config := must(s.UserConfig(name))(t)
	config.Impersonate.UserName = other
	return must(kubernetes.NewForConfig(config))(t)
}

// A user with the right to impersonate one user acts as this user, and as no other.
func TestRBACImpersonation(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	s.grantTo(t, "", "impersonator", user("jane"), rbacv1.PolicyRule{
		Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{"bob"},
	})
	s.grantTo(t, "default", "reader", user("bob"), rule("list", "pods"))
	must(s.impersonating(t, "jane", "bob").CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}))(t)
	if _, err := s.impersonating(t, "jane", "eve").CoreV1().Pods("default").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("as eve: %v", err)
	}
	if _, err := s.as(t, "jane").CoreV1().Pods("default").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("as herself: %v", err)
	}
}

// Nobody grants rights that they don't have, except with the verbs escalate and bind.
func TestRBACEscalation(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	ctx := t.Context()
	s.grantTo(t, "default", "author", user("jane"), rule("*", "roles,rolebindings"), rule("get,list", "pods"))
	s.grantTo(t, "", "powerful", user("nobody"), rule("*", "*"))
	jane := s.as(t, "jane").RbacV1()
	role := func(rules ...rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Rules: rules}
	}
	binding := func(kind, name string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
			Subjects: []rbacv1.Subject{user("jane")}}
	}
	pods := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	secrets := rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"secrets"}}
	_, err := jane.Roles("default").Create(ctx, role(pods, secrets), metav1.CreateOptions{})
	// The verb * on roles includes escalate.
	if err != nil {
		t.Errorf("with the verb escalate: %v", err)
	}
	s.grantTo(t, "kube-public", "author", user("bob"), rule("create,update,get,patch", "roles,rolebindings"),
		rule("get,list", "pods"))
	bob := s.as(t, "bob", "staff").RbacV1()
	_, err = bob.Roles("kube-public").Create(ctx, role(pods, secrets), metav1.CreateOptions{})
	if want := `roles.rbac.authorization.k8s.io "made" is forbidden: user "bob" (groups=["staff" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:` +
		"\n" + `{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}`; !apierrors.IsForbidden(err) ||
		err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	must(bob.Roles("kube-public").Create(ctx, role(pods), metav1.CreateOptions{}))(t)
	s.waitKnown(t)
	must(bob.RoleBindings("kube-public").Create(ctx, binding("Role", "made"), metav1.CreateOptions{}))(t)
	for what, err := range map[string]error{
		"update": second(bob.Roles("kube-public").Update(ctx, role(secrets), metav1.UpdateOptions{})),
		"patch": second(bob.Roles("kube-public").Patch(ctx, "made", types.MergePatchType,
			[]byte(`{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]}`), metav1.PatchOptions{})),
		"bind a ClusterRole": second(bob.RoleBindings("kube-public").Create(ctx, binding("ClusterRole", "powerful"),
			metav1.CreateOptions{})),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := bob.RoleBindings("kube-public").Create(ctx, binding("Role", "missing"),
		metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("bind a missing role: %v", err)
	}
	must(bob.Roles("kube-public").Patch(ctx, "made", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{}))(t)
	s.grantTo(t, "kube-public", "binder", user("bob"), rbacv1.PolicyRule{
		Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"},
		ResourceNames: []string{"powerful"},
	})
	must(bob.RoleBindings("kube-public").Create(ctx, binding("ClusterRole", "powerful"), metav1.CreateOptions{}))(t)
	if _, err := bob.RoleBindings("kube-public").Create(ctx, binding("ClusterRole", "cluster-admin"),
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("bind another ClusterRole: %v", err)
	}
}

// An aggregated ClusterRole has the rules of those that it selects, also of later ones, and needs all rights to be
// made.
func TestRBACAggregation(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	ctx, roles := t.Context(), s.admin.typed.RbacV1().ClusterRoles()
	edit := must(roles.Get(ctx, "edit", metav1.GetOptions{}))(t)
	if len(edit.Rules) < 20 {
		t.Errorf("edit has %d rules at the start", len(edit.Rules))
	}
	widgets := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"},
		Resources: []string{"widgets"}}
	must(roles.Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "widget-reader",
			Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules: []rbacv1.PolicyRule{widgets},
	}, metav1.CreateOptions{}))(t)
	has := func(want bool) {
		t.Helper()
		for _, name := range []string{"view", "edit", "admin"} { // view is a part of edit, and edit of admin
			await.State(t, name+" follows", func() (bool, string) {
				role, err := roles.Get(ctx, name, metav1.GetOptions{})
				return err == nil && slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
					return r.String() == widgets.String()
				}) == want, "not yet"
			})
		}
	}
	has(true)
	if err := roles.Delete(ctx, "widget-reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	has(false)

	s.grantTo(t, "", "author", user("jane"), rule("create,get,patch", "clusterroles"))
	aggregated := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}},
	}}
	_, err := s.as(t, "jane").RbacV1().ClusterRoles().Create(ctx, aggregated, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "must have cluster-admin privileges to use the aggregationRule") {
		t.Errorf("jane aggregates: %v", err)
	}
}

// A ClusterRole that is deleted or changed between the server's read of it and the write of its aggregated rules stays
// as the user left it. helm uninstall deletes an aggregated role and those that it selects at the same time.
func TestRBACAggregationOfARoleThatChanges(t *testing.T) {
	t.Parallel()
	type write struct {
		role   string
		before func()
		done   chan int // receives the status of the response
	}
	var next atomic.Pointer[write]
	s := startRBAC(t, controlplane.Options{Middleware: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			race := next.Load()
			if r.Method != http.MethodPatch || race == nil || !strings.HasSuffix(r.URL.Path, "/clusterroles/"+race.role) ||
				!next.CompareAndSwap(race, nil) {
				h.ServeHTTP(w, r)
				return
			}
			race.before()
			recorded := httptest.NewRecorder()
			h.ServeHTTP(recorded, r)
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(recorded.Body.Bytes())
			race.done <- recorded.Code
		})
	}})
	ctx, roles := t.Context(), s.admin.typed.RbacV1().ClusterRoles()
	part := func(name string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"part": name}},
			Rules: []rbacv1.PolicyRule{rule("get", name)}}
	}
	aggregated := func(name, of string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"part": of}}},
		}}
	}
	must(roles.Create(ctx, part("pods"), metav1.CreateOptions{}))(t)
	must(roles.Create(ctx, part("nodes"), metav1.CreateOptions{}))(t)
	own := []rbacv1.PolicyRule{rule("list", "secrets")}
	hasRules := func(name string, want ...rbacv1.PolicyRule) (bool, string) {
		role, err := roles.Get(ctx, name, metav1.GetOptions{})
		return err == nil && equality.Semantic.DeepEqual(role.Rules, want), fmt.Sprint(role, err)
	}
	for name, test := range map[string]struct {
		change func(role string) error
		stays  func(role string) (bool, string)
	}{
		"deleted": {
			change: func(name string) error { return roles.Delete(ctx, name, metav1.DeleteOptions{}) },
			stays: func(name string) (bool, string) {
				role, err := roles.Get(ctx, name, metav1.GetOptions{})
				return apierrors.IsNotFound(err), fmt.Sprint(role, err)
			},
		},
		"explicit": {
			change: func(name string) error {
				role, err := roles.Get(ctx, name, metav1.GetOptions{})
				if err == nil {
					role.AggregationRule, role.Rules = nil, own
					_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
				}
				return err
			},
			stays: func(name string) (bool, string) { return hasRules(name, own...) },
		},
		"replaced": {
			change: func(name string) error {
				if err := roles.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					return err
				}
				_, err := roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: own},
					metav1.CreateOptions{})
				return err
			},
			stays: func(name string) (bool, string) { return hasRules(name, own...) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			race := &write{role: name, done: make(chan int, 1)}
			race.before = func() {
				if err := test.change(name); err != nil {
					t.Error(err)
				}
			}
			next.Store(race)
			must(roles.Create(ctx, aggregated(name, "pods"), metav1.CreateOptions{}))(t)
			select {
			case status := <-race.done:
				if status != http.StatusConflict {
					t.Errorf("the write of the rules is answered with %d", status)
				}
			case <-time.After(await.Deadline):
				t.Fatal("no rules were written")
			}
			if ok, is := test.stays(name); !ok {
				t.Errorf("the role is %s", is)
			}
		})
	}
	// A conflict is not the end: the next role of the name gets its rules.
	must(roles.Create(ctx, aggregated("deleted", "nodes"), metav1.CreateOptions{}))(t)
	await.State(t, "the rules are written", func() (bool, string) { return hasRules("deleted", rule("get", "nodes")) })
}

// The reviews of kubectl auth: can-i, can-i --list, and those of one namespace.
func TestRBACReviews(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	ctx := t.Context()
	s.grantTo(t, "default", "reader", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "robot"},
		rule("get", "pods/log"))
	s.grantTo(t, "", "prober", rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "staff"},
		rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/debug/*"}})
	robot := s.as(t, "system:serviceaccount:default:robot", "system:serviceaccounts", "staff").AuthorizationV1()
	for _, q := range []struct {
		authorizationv1.SelfSubjectAccessReviewSpec
		want bool
	}{
		{authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "default", Verb: "get", Resource: "pods", Subresource: "log"}}, true},
		{authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "default", Verb: "get", Resource: "pods"}}, false},
		{authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{
			Path: "/debug/pprof", Verb: "get"}}, true},
		{authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{
			Path: "/logs", Verb: "get"}}, false},
	} {
		review := must(robot.SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: q.SelfSubjectAccessReviewSpec}, metav1.CreateOptions{}))(t)
		if review.Status.Allowed != q.want || review.Status.Denied {
			t.Errorf("%+v: %+v", q.SelfSubjectAccessReviewSpec, review.Status)
		}
	}
	rules := must(robot.SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}},
		metav1.CreateOptions{}))(t)
	if !slices.ContainsFunc(rules.Status.ResourceRules, func(r authorizationv1.ResourceRule) bool {
		return slices.Equal(r.Resources, []string{"pods/log"})
	}) || rules.Status.Incomplete {
		t.Errorf("the robot's rules are %+v", rules.Status)
	}
	local := s.admin.typed.AuthorizationV1().LocalSubjectAccessReviews("default")
	review := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "default"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:default:robot",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Resource: "pods",
				Subresource: "log"},
		}}
	answered := must(local.Create(ctx, review, metav1.CreateOptions{}))(t)
	if want := `RBAC: allowed by RoleBinding "reader/default" of Role "reader" to ServiceAccount "robot/default"`; !answered.Status.Allowed || answered.Status.Reason != want {
		t.Errorf("got %+v, want %s", answered.Status, want)
	}
	review.Spec.ResourceAttributes.Namespace = "kube-system"
	if _, err := local.Create(ctx, review, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("of another namespace: %v", err)
	}
}

// Without a client certificate or a token, the public paths are those of the default roles.
func TestRBACAnonymous(t *testing.T) {
	t.Parallel()
	s := startRBAC(t, controlplane.Options{})
	client := must(rest.HTTPClientFor(rest.AnonymousClientConfig(s.RESTConfig())))(t)
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/healthz": 200, "/livez/ping": 403,
		"/version": 401, "/api": 401} {
		answer := must(client.Get(s.RESTConfig().Host + path))(t)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s answers %d, want %d", path, answer.StatusCode, want)
		}
	}
}

// Default roles outlive a restart. What they lack is restored at the next start, unless an annotation protects them.
func TestRBACDefaultsAfterRestart(t *testing.T) {
	t.Parallel()
	options := controlplane.Options{DataDir: t.TempDir()}
	s := startRBAC(t, options)
	ctx, rbac := t.Context(), s.admin.typed.RbacV1()
	before := must(rbac.ClusterRoleBindings().Get(ctx, "system:discovery", metav1.GetOptions{}))(t)
	if err := rbac.ClusterRoles().Delete(ctx, "system:basic-user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	empty := []byte(`{"rules":[]}`)
	must(rbac.ClusterRoles().Patch(ctx, "system:discovery", types.MergePatchType, empty, metav1.PatchOptions{}))(t)
	protected := []byte(
		`{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"subjects":[]}`)
	must(rbac.ClusterRoleBindings().Patch(ctx, "system:public-info-viewer", types.MergePatchType, protected,
		metav1.PatchOptions{}))(t)
	s.stop()

	s = startRBAC(t, options)
	rbac = s.admin.typed.RbacV1()
	must(rbac.ClusterRoles().Get(ctx, "system:basic-user", metav1.GetOptions{}))(t)
	if role := must(rbac.ClusterRoles().Get(ctx, "system:discovery", metav1.GetOptions{}))(t); len(role.Rules) == 0 {
		t.Error("the rules of system:discovery are not restored")
	}
	if binding := must(rbac.ClusterRoleBindings().Get(ctx, "system:public-info-viewer",
		metav1.GetOptions{}))(t); len(binding.Subjects) != 0 {
		t.Errorf("a protected binding is restored: %+v", binding.Subjects)
	}
	if after := must(rbac.ClusterRoleBindings().Get(ctx, "system:discovery",
		metav1.GetOptions{}))(t); after.ResourceVersion != before.ResourceVersion {
		t.Error("a binding that lacks nothing was written")
	}
	must(s.as(t, "anyone").Discovery().ServerGroups())(t)
}

// A request that roles allow is answered after a restart, also before the server has read its roles.
func TestRBACAtAStart(t *testing.T) {
	t.Parallel()
	memory := controlplane.NewMemory()
	t.Cleanup(memory.Close)
	listen := child.Address(t)
	s := startRBAC(t, controlplane.Options{Memory: memory, Listen: listen})
	s.grantTo(t, "", "reader", user("jane"), rule("list", "configmaps"))
	jane := s.as(t, "jane")
	s.stop()

	var sent sync.Once
	received := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { sent.Do(func() { close(received) }) }})
	listed := make(chan error, 1)
	go func() {
		for {
			_, err := jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			if _, answered := err.(apierrors.APIStatus); err == nil || answered || ctx.Err() != nil {
				listed <- err
				return
			}
		}
	}()
	startRBAC(t, controlplane.Options{Memory: memory, Listen: listen, Middleware: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings" {
				select {
				case <-received:
				case <-r.Context().Done():
				}
			}
			h.ServeHTTP(w, r)
		})
	}})
	if err := <-listed; err != nil {
		t.Error(err)
	}
}

// An authorization mode that is not offered is refused.
func TestUnknownAuthorization(t *testing.T) {
	for _, mode := range []controlplane.Authorization{"Node,RBAC", "rbac", "Webhook"} {
		_, err := controlplane.New(controlplane.Options{Authorization: mode})
		if err == nil || !strings.Contains(err.Error(), string(mode)) || !strings.Contains(err.Error(), `"RBAC"`) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
