// Package controllers runs the Go code that docs/testing.md prints.
package controllers

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// Each block of Go code of the page is in this file, except its lines of three dots.
func TestPageHasThisCode(t *testing.T) {
	page, err := os.ReadFile("../../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 6 {
		t.Fatalf("docs/testing.md has %d blocks of Go", len(blocks))
	}
	dots := regexp.MustCompile(`(?m)^\s*\.\.\..*$`)
	here := inOneLine(string(code))
	for _, block := range blocks {
		for _, part := range dots.Split(string(block[1]), -1) {
			if !strings.Contains(here, inOneLine(part)) {
				t.Errorf("this code of docs/testing.md is not tested:\n%s", part)
			}
		}
	}
}

// inOneLine has one space for each piece of white space.
func inOneLine(code string) string { return strings.Join(strings.Fields(code), " ") }

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "default"},
	}}
}

func TestController(t *testing.T) {
	srv := testserver.New(t, testserver.CRDs("config/crd"))
	c, err := client.New(srv.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), widget("one")); err != nil {
		t.Fatal(err)
	}
}

func TestForks(t *testing.T) {
	fleet := []runtime.Object{widget("one"), widget("two")}
	base := testserver.New(t, testserver.CRDs("config/crd"), testserver.Objects(fleet...))
	t.Run("scales up", func(t *testing.T) {
		t.Parallel()
		srv := base.Fork(t)
		c, err := client.New(srv.Config(), client.Options{})
		origin, err2 := client.New(base.Config(), client.Options{})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"one", "two"} {
			if err := c.Delete(t.Context(), widget(name)); err != nil {
				t.Error(err)
			}
			o := widget(name)
			if err := origin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Errorf("the fork has changed its origin: %v", err)
			}
		}
	})
}

func TestSimulation(t *testing.T) {
	srv := testserver.New(t, testserver.Simulate())
	apps := kubernetes.NewForConfigOrDie(srv.Config()).AppsV1().Deployments("default")
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, MinReadySeconds: 300,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}},
	}}
	if _, err := apps.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes := func(what string, is func(appsv1.DeploymentStatus) bool) {
		t.Helper()
		await.True(t, what, func() bool {
			d, err := apps.Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil && is(d.Status)
		})
	}
	becomes("ready", func(s appsv1.DeploymentStatus) bool { return s.ReadyReplicas == 1 && s.AvailableReplicas == 0 })
	srv.Advance(10 * time.Minute) // and what has a delay
	becomes("available", func(s appsv1.DeploymentStatus) bool { return s.AvailableReplicas == 1 })
}

func TestRights(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "controller"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
			Kind: "ClusterRole", Name: "controller"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "controller"}},
	}
	srv := testserver.New(t, testserver.RBAC(), testserver.CRDs("config/crd"), testserver.Objects(role, binding))
	mgr, err := ctrl.NewManager(srv.User("controller"), ctrl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := mgr.GetClient()
	widgets := &unstructured.UnstructuredList{}
	widgets.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WidgetList"})
	await.True(t, "the role applies", func() bool { return mgr.GetAPIReader().List(t.Context(), widgets) == nil })
	if err := c.Create(t.Context(), widget("one")); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `cannot create resource "widgets"`) {
		t.Errorf("a right that the role does not have: %v", err)
	}
}

func TestServiceAccount(t *testing.T) {
	ctx := t.Context()
	srv := testserver.New(t, testserver.Objects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "system"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "controller"}},
	))
	admin := kubernetes.NewForConfigOrDie(srv.Config())
	request, err := admin.CoreV1().ServiceAccounts("system").CreateToken(ctx, "controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(srv.Config())
	config.BearerToken = request.Status.Token
	review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:system:controller" {
		t.Errorf("the user is %v, %v", review.Status.UserInfo, err)
	}
}

func TestNeedlessWrites(t *testing.T) {
	srv := testserver.New(t, testserver.CRDs("config/crd"), testserver.Objects(widget("one")))
	reconcileAgain := func() {}
	before := len(srv.Requests(testserver.Verb("patch", "widgets/status")))
	reconcileAgain()
	if n := len(srv.Requests(testserver.Verb("patch", "widgets/status"))); n != before {
		t.Errorf("%d needless writes", n-before)
	}
	if c, err := client.New(srv.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	} else if err := c.Status().Patch(t.Context(), widget("one"), client.RawPatch("application/merge-patch+json",
		[]byte(`{"status": {"ready": true}}`))); err != nil {
		t.Fatal(err)
	}
	if n := len(srv.Requests(testserver.Verb("patch", "widgets/status"))); n != before+1 {
		t.Errorf("%d writes are counted, want 1", n-before)
	}
}
