package rbac

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Escalation is the admission of roles and bindings: nobody grants rights that they don't have. The verb escalate on a
// role, and bind on the role of a binding, are exceptions.
type Escalation struct {
	*admission.Handler
	authorizer *Authorizer
}

var _ admission.ValidationInterface = (*Escalation)(nil)

// NewEscalation returns the admission for an authorizer.
func NewEscalation(authorizer *Authorizer) *Escalation {
	return &Escalation{admission.NewHandler(admission.Create, admission.Update), authorizer}
}

// everything is the rules of a user who may do everything.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// Validate returns 403 Forbidden for a role or a binding that grants more than its author has, and 404 for a binding to
// a role that does not exist.
func (e *Escalation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != rbacv1.GroupName || isMaster(a.GetUserInfo()) {
		return nil
	}
	if a.GetOperation() == admission.Update && changesOnlyCollection(a.GetObject(), a.GetOldObject()) {
		return nil
	}
	e.authorizer.Wait(ctx) // the rule that allowed the request may be the only one that was read
	switch object := a.GetObject().(type) {
	case *rbacv1.Role:
		return e.validateRules(ctx, a, object.Rules, false)
	case *rbacv1.ClusterRole:
		old, _ := a.GetOldObject().(*rbacv1.ClusterRole)
		return e.validateRules(ctx, a, object.Rules, isAggregated(object) || isAggregated(old))
	case *rbacv1.RoleBinding:
		return e.validateBinding(ctx, a, object.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return e.validateBinding(ctx, a, object.RoleRef)
	}
	return nil
}

// isAggregated reports whether the rules of a role are those of others.
func isAggregated(role *rbacv1.ClusterRole) bool {
	return role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// changesOnlyCollection reports whether an update changes only what a garbage collector changes.
func changesOnlyCollection(object, old runtime.Object) bool {
	changed, ok := object.DeepCopyObject().(metav1.Object)
	before, okBefore := old.(metav1.Object)
	if !ok || !okBefore {
		return false
	}
	changed.SetOwnerReferences(before.GetOwnerReferences())
	changed.SetFinalizers(before.GetFinalizers())
	changed.SetManagedFields(before.GetManagedFields())
	return equality.Semantic.DeepEqual(changed, old)
}

// validateRules decides about a role with rules.
func (e *Escalation) validateRules(ctx context.Context, a admission.Attributes, rules []rbacv1.PolicyRule,
	aggregated bool) error {
	var name string
	if info, ok := request.RequestInfoFrom(ctx); ok {
		name = info.Name // empty in a create, unlike the object's
	}
	if e.may(ctx, "escalate", a.GetUserInfo(), a.GetResource().Resource, a.GetNamespace(), name) {
		return nil
	}
	if err := e.covers(a.GetUserInfo(), a.GetNamespace(), rules); err != nil {
		return forbidden(a, err)
	}
	if aggregated && e.covers(a.GetUserInfo(), a.GetNamespace(), everything) != nil {
		return forbidden(a, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// validateBinding decides about a binding to a role.
func (e *Escalation) validateBinding(ctx context.Context, a admission.Attributes, ref rbacv1.RoleRef) error {
	resources := map[string]string{"ClusterRole": "clusterroles", "Role": "roles"}
	if resource := resources[ref.Kind]; resource != "" && e.may(ctx, "bind", a.GetUserInfo(), resource, a.GetNamespace(),
		ref.Name) {
		return nil
	}
	rules, err := e.authorizer.policy.rulesOf(ref, a.GetNamespace())
	if apierrors.IsNotFound(err) {
		// it names the binding's resource, as in kube-apiserver
		return apierrors.NewNotFound(a.GetResource().GroupResource(), ref.Name)
	}
	if err != nil {
		return err
	}
	if err := e.covers(a.GetUserInfo(), a.GetNamespace(), rules); err != nil {
		return forbidden(a, err)
	}
	return nil
}

func forbidden(a admission.Attributes, err error) error {
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), err)
}

// may reports whether a user has a verb on a role.
func (e *Escalation) may(ctx context.Context, verb string, u user.Info, resource, namespace, name string) bool {
	decision, _, _ := e.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: rbacv1.GroupName, APIVersion: "*", Resource: resource, Namespace: namespace,
		Name: name, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

// covers returns an error that lists the rules that a user doesn't have in a namespace.
func (e *Escalation) covers(u user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	own, problem := e.authorizer.policy.rules(u, namespace)
	ok, missing := validation.Covers(own, rules)
	if ok {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", u.GetName(),
		u.GetGroups(), describe(missing))
	if problem != nil {
		text += fmt.Sprintf("; resolution errors: [%v]", problem)
	}
	return errors.New(text)
}
