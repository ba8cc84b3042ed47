package controlplane_test

import (
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A namespace that is deleted in the foreground waits for what it owns, as every other object does.
func TestNamespaceInForeground(t *testing.T) {
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	ns := newNamespace(t, c)
	namespaces, roles := c.typed.CoreV1().Namespaces(), c.typed.RbacV1().ClusterRoles()
	ctx := t.Context()
	owner := must(namespaces.Get(ctx, ns, metav1.GetOptions{}))(t)
	owned := must(roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "owned-", Finalizers: []string{"example.com/held"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns, UID: owner.UID,
			BlockOwnerDeletion: new(true)}},
	}}, metav1.CreateOptions{}))(t)
	foreground := metav1.DeletePropagationForeground
	if err := namespaces.Delete(ctx, ns, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the owned object is being deleted", func() (bool, string) {
		role, err := roles.Get(ctx, owned.Name, metav1.GetOptions{})
		return err == nil && role.DeletionTimestamp != nil, fmt.Sprint(err)
	})
	owner, err := namespaces.Get(ctx, ns, metav1.GetOptions{})
	if err != nil || !slices.Equal(owner.Finalizers, []string{metav1.FinalizerDeleteDependents}) {
		t.Fatalf("the namespace did not wait: %v, %v", owner.Finalizers, err)
	}
	if _, err := roles.Patch(ctx, owned.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitNamespaceDeleted(t, c, ns)
}
