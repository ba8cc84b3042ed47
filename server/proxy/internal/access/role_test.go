package access

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/source/kube"
)

// A write counts if it changes rules, subjects or the reference, in the namespace of the object.
func TestChangesThatGrant(t *testing.T) {
	decode := func(namespace, body string) keepwatch.Object {
		if body == "" {
			return nil
		}
		o, err := decodeRole(kube.Raw{Key: keepwatch.Key{Namespace: namespace, Name: "r"}, Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const (
		binding = `{"metadata":{"name":"r"},"subjects":[{"kind":"User","name":"ada"}],"roleRef":{"kind":"Role","name":"view"}}`
		noted   = `{"metadata":{"name":"r","annotations":{"a":"b"}},"subjects":[{"kind":"User","name":"ada"}],"roleRef":{"kind":"Role","name":"view"}}`
		another = `{"metadata":{"name":"r"},"subjects":[{"kind":"User","name":"bob"}],"roleRef":{"kind":"Role","name":"view"}}`
		edit    = `{"metadata":{"name":"r"},"subjects":[{"kind":"User","name":"ada"}],"roleRef":{"kind":"Role","name":"edit"}}`
		rules   = `{"metadata":{"name":"r"},"rules":[{"verbs":["get"]}]}`
		more    = `{"metadata":{"name":"r"},"rules":[{"verbs":["get","list"]}]}`
		labeled = `{"metadata":{"name":"r","labels":{"a":"b"}},"rules":[{"verbs":["get"]}]}`
	)
	for _, c := range []struct {
		kind          keepwatch.ChangeType
		before, after string
		counts        bool
	}{
		{keepwatch.Added, "", binding, true},
		{keepwatch.Modified, binding, noted, false},
		{keepwatch.Modified, binding, another, true},
		{keepwatch.Modified, binding, edit, true},
		{keepwatch.Modified, rules, labeled, false},
		{keepwatch.Modified, rules, more, true},
		{keepwatch.Deleted, binding, binding, true},
	} {
		change := keepwatch.Change{Type: c.kind, Object: decode("shop", c.after), Prior: decode("shop", c.before)}
		if got := concerned([]keepwatch.Change{change})["shop"]; got != c.counts {
			t.Errorf("%v from %q to %q counts: %v", c.kind, c.before, c.after, got)
		}
	}
	cluster := keepwatch.Change{Type: keepwatch.Added, Object: decode("", rules)}
	local := keepwatch.Change{Type: keepwatch.Added, Object: decode("shop", rules)}
	if got := concerned([]keepwatch.Change{cluster, local}); len(got) != 1 || !got[""] {
		t.Errorf("a change of the cluster concerns %v", got)
	}
}

// The roles of a server are followed: a write that grants nothing else makes permissions forget nothing.
func TestAnnotatedBindings(t *testing.T) {
	t.Parallel()
	server := testserver.New(t)
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(server.Config(), client, Options{Personal: true})
	if err != nil {
		t.Fatal(err)
	}
	var touched atomic.Int64 // how often personal views of ada are decided again
	c.OnChanges(func(...string) {}, func(subjects map[string]bool, ok bool) {
		if ok && len(subjects) > 0 {
			touched.Add(1)
		}
	}, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	p := c.permissions
	changed := func(namespace string) uint64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s := p.namespaces[namespace]; s != nil {
			return s.changed
		}
		return 0
	}
	waitFor := func(namespace string) uint64 {
		t.Helper()
		await.True(t, "the roles of "+namespace+" have changed", func() bool { return changed(namespace) != 0 })
		return changed(namespace)
	}
	create := func(namespace string) {
		t.Helper()
		_, err := client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "r"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName,
				Kind: rbacv1.UserKind, Name: "ada"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	patch := func(body string) {
		t.Helper()
		if _, err := client.RbacV1().RoleBindings("shop").Patch(t.Context(), "r", types.MergePatchType, []byte(body),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "the roles are followed", func() bool { return !slices.ContainsFunc(c.roles.reflectors, notLive) })
	create("shop")
	before := waitFor("shop")
	await.True(t, "the views of the new binding's subject are decided", func() bool { return touched.Load() == 1 })
	patch(`{"metadata":{"annotations":{"a":"b"}}}`)
	create("after")
	waitFor("after")
	await.True(t, "the views of the next binding's subject are decided", func() bool { return touched.Load() >= 2 })
	if n := touched.Load(); n != 2 {
		t.Errorf("an annotation makes views be decided again: %d times", n)
	}
	if now := changed("shop"); now != before {
		t.Error("an annotation makes permissions forget")
	}
	patch(`{"subjects":[]}`)
	create("last")
	waitFor("last")
	if now := changed("shop"); now == before {
		t.Error("a binding without subjects makes permissions forget nothing")
	}
}
