package rbac

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// file has what kube-apiserver v1.36.3 lists after its start, an object a line. make default-roles writes it.
//
//go:embed defaults.ndjson
var file []byte

// defaults are the roles and bindings that every cluster has. They are shared, and never changed.
type defaults struct {
	clusterRoles    []rbacv1.ClusterRole
	clusterBindings []rbacv1.ClusterRoleBinding
	roles           []rbacv1.Role
	bindings        []rbacv1.RoleBinding
}

// loadDefaults reads the file once in a process. The rules of aggregated roles are complete.
var loadDefaults = sync.OnceValues(func() (*defaults, error) {
	var d defaults
	for line := range bytes.Lines(file) {
		if err := d.add(line); err != nil {
			return nil, fmt.Errorf("%.80s: %w", line, err)
		}
	}
	return &d, d.aggregate()
})

// add adds the object of a line.
func (d *defaults) add(line []byte) error {
	var of metav1.TypeMeta
	if err := json.Unmarshal(line, &of); err != nil {
		return err
	}
	switch of.Kind {
	case "ClusterRole":
		return decode(line, &d.clusterRoles)
	case "ClusterRoleBinding":
		return decode(line, &d.clusterBindings)
	case "Role":
		return decode(line, &d.roles)
	case "RoleBinding":
		return decode(line, &d.bindings)
	}
	return fmt.Errorf("the kind %q is unknown", of.Kind)
}

// decode appends the object of a line.
func decode[T any](line []byte, to *[]T) error {
	var o T
	err := json.Unmarshal(line, &o)
	*to = append(*to, o)
	return err
}

// aggregate sets the rules of aggregated roles. A role can select another one, so it repeats until nothing changes.
func (d *defaults) aggregate() error {
	all := make([]*rbacv1.ClusterRole, len(d.clusterRoles))
	for i := range d.clusterRoles {
		all[i] = &d.clusterRoles[i]
	}
	for changed := true; changed; {
		changed = false
		for _, role := range all {
			if role.AggregationRule == nil {
				continue
			}
			rules, err := aggregate(role, all)
			if err != nil {
				return err
			}
			changed = changed || !equality.Semantic.DeepEqual(rules, role.Rules)
			role.Rules = rules
		}
	}
	return nil
}

// creations is the number of objects that EnsureDefaults writes at a time.
const creations = 4

// EnsureDefaults creates the default roles and bindings that don't exist, and restores rules and subjects that the
// others lack, unless an annotation protects them: as kube-apiserver does at its start. The namespaces kube-system and
// kube-public exist.
func EnsureDefaults(ctx context.Context, client kubernetes.Interface) error {
	want, err := loadDefaults()
	if err != nil {
		return err
	}
	have, err := readDefaults(ctx, client)
	if err != nil {
		return err
	}
	rbac := client.RbacV1()
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(creations)
	ensure(writes, want.clusterRoles, have.clusterRoles, sameClusterRole, func(o *rbacv1.ClusterRole) error {
		_, err := rbac.ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
		return err
	}, func(o *rbacv1.ClusterRole) error {
		return restoreRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: o},
			reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()})
	})
	ensure(writes, want.clusterBindings, have.clusterBindings, sameClusterBinding,
		func(o *rbacv1.ClusterRoleBinding) error {
			_, err := rbac.ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
			return err
		}, func(o *rbacv1.ClusterRoleBinding) error {
			return restoreBinding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: o},
				reconciliation.ClusterRoleBindingClientAdapter{Client: rbac.ClusterRoleBindings()})
		})
	ensure(writes, want.roles, have.roles, sameRole, func(o *rbacv1.Role) error {
		_, err := rbac.Roles(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	}, func(o *rbacv1.Role) error {
		return restoreRole(reconciliation.RoleRuleOwner{Role: o}, reconciliation.RoleModifier{Client: rbac,
			NamespaceClient: client.CoreV1().Namespaces()})
	})
	ensure(writes, want.bindings, have.bindings, sameBinding, func(o *rbacv1.RoleBinding) error {
		_, err := rbac.RoleBindings(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	}, func(o *rbacv1.RoleBinding) error {
		return restoreBinding(reconciliation.RoleBindingAdapter{RoleBinding: o},
			reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: client.CoreV1().Namespaces()})
	})
	return writes.Wait()
}

// readDefaults returns the roles and bindings that exist.
func readDefaults(ctx context.Context, client kubernetes.Interface) (*defaults, error) {
	rbac := client.RbacV1()
	clusterRoles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	clusterBindings, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	roles, err := rbac.Roles(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	bindings, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return &defaults{clusterRoles.Items, clusterBindings.Items, roles.Items, bindings.Items}, nil
}

// object is an API object of type T.
type object[T any] interface {
	*T
	metav1.Object
	DeepCopy() *T
}

// ensure creates the objects that don't exist, and restores those that differ. create and restore receive copies.
func ensure[T any, O object[T]](writes *errgroup.Group, want, have []T, same func(have, want O) bool, create,
	restore func(O) error) {
	present := make(map[types.NamespacedName]O, len(have))
	for i := range have {
		o := O(&have[i])
		present[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	}
	for i := range want {
		o := O(&want[i])
		got, ok := present[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}]
		switch {
		case !ok:
			writes.Go(func() error {
				if err := create(o.DeepCopy()); !apierrors.IsAlreadyExists(err) {
					return err
				}
				return nil
			})
		case !same(got, o):
			writes.Go(func() error { return restore(o.DeepCopy()) })
		}
	}
}

// The rules of an aggregated role are the aggregator's.
func sameClusterRole(have, want *rbacv1.ClusterRole) bool {
	return equality.Semantic.DeepEqual(have.AggregationRule, want.AggregationRule) &&
		(want.AggregationRule != nil || equality.Semantic.DeepEqual(have.Rules, want.Rules)) && sameMetadata(have, want)
}

func sameRole(have, want *rbacv1.Role) bool {
	return equality.Semantic.DeepEqual(have.Rules, want.Rules) && sameMetadata(have, want)
}

func sameClusterBinding(have, want *rbacv1.ClusterRoleBinding) bool {
	return have.RoleRef == want.RoleRef && equality.Semantic.DeepEqual(have.Subjects, want.Subjects) &&
		sameMetadata(have, want)
}

func sameBinding(have, want *rbacv1.RoleBinding) bool {
	return have.RoleRef == want.RoleRef && equality.Semantic.DeepEqual(have.Subjects, want.Subjects) &&
		sameMetadata(have, want)
}

func sameMetadata(have, want metav1.Object) bool {
	return maps.Equal(have.GetLabels(), want.GetLabels()) && maps.Equal(have.GetAnnotations(), want.GetAnnotations())
}

func restoreRole(role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) error {
	restore := reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}
	_, err := restore.Run()
	return err
}

func restoreBinding(binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) error {
	restore := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: client, Confirm: true}
	_, err := restore.Run()
	return err
}
