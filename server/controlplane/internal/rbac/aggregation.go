package rbac

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// aggregationManager owns the rules of aggregated roles, as in a cluster.
	aggregationManager = "clusterrole-aggregation-controller"
	// aggregationRetry is the pause after rules could not be written.
	aggregationRetry = time.Second
)

// Aggregator writes the rules of ClusterRoles with an aggregation rule: those of the ClusterRoles that it selects. In a
// cluster, kube-controller-manager does.
type Aggregator struct {
	client  kubernetes.Interface
	policy  *Policy
	changed chan struct{} // of capacity 1: the roles changed since it was received from
}

// NewAggregator returns the aggregator of a policy, which the caller follows.
func NewAggregator(client kubernetes.Interface, policy *Policy) (*Aggregator, error) {
	a := &Aggregator{client: client, policy: policy, changed: make(chan struct{}, 1)}
	_, err := policy.rbac.ClusterRoles().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.notify() },
		UpdateFunc: func(any, any) { a.notify() },
		DeleteFunc: func(any) { a.notify() },
	})
	return a, err
}

func (a *Aggregator) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Run writes rules until ctx is done.
func (a *Aggregator) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		}
		if err := a.writeRules(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "The rules of a ClusterRole are written again later")
			select {
			case <-ctx.Done():
			case <-time.After(aggregationRetry):
				a.notify()
			}
		}
	}
}

// writeRules writes the rules of all aggregated roles that have others. A role that cannot be written does not keep
// others.
func (a *Aggregator) writeRules(ctx context.Context) error {
	roles, err := a.policy.rbac.ClusterRoles().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	var failed error
	for _, role := range roles {
		if role.AggregationRule == nil {
			continue
		}
		rules, err := aggregate(role, roles)
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "A ClusterRole has an invalid selector", "clusterrole", role.Name)
			continue
		}
		if equality.Semantic.DeepEqual(rules, role.Rules) {
			continue
		}
		options := metav1.ApplyOptions{FieldManager: aggregationManager, Force: true}
		_, err = a.client.RbacV1().ClusterRoles().Apply(ctx, applyRules(role, rules), options)
		if apierrors.IsConflict(err) {
			continue // it was changed or deleted after it was read: the informer reports that
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// aggregate returns the different rules of the roles that an aggregated role selects: in the order of its selectors,
// and of the roles' names.
func aggregate(aggregated *rbacv1.ClusterRole, roles []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	roles = slices.SortedFunc(slices.Values(roles), func(a, b *rbacv1.ClusterRole) int {
		return cmp.Compare(a.Name, b.Name)
	})
	rules := []rbacv1.PolicyRule{}
	for _, selector := range aggregated.AggregationRule.ClusterRoleSelectors {
		selected, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			return nil, err
		}
		for _, role := range roles {
			if role.Name == aggregated.Name || !selected.Matches(labels.Set(role.Labels)) {
				continue
			}
			for _, rule := range role.Rules {
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// applyRules returns the configuration that writes the rules of a role as it was read. Without the UID, server-side
// apply would create a role again that is deleted meanwhile, and without the resourceVersion it would replace the rules
// of one that is no longer aggregated.
func applyRules(read *rbacv1.ClusterRole, rules []rbacv1.PolicyRule) *applyrbacv1.ClusterRoleApplyConfiguration {
	role := applyrbacv1.ClusterRole(read.Name).WithUID(read.UID).WithResourceVersion(read.ResourceVersion)
	for _, r := range rules {
		role.WithRules(applyrbacv1.PolicyRule().WithVerbs(r.Verbs...).WithAPIGroups(r.APIGroups...).WithResources(
			r.Resources...).
			WithResourceNames(r.ResourceNames...).WithNonResourceURLs(r.NonResourceURLs...))
	}
	return role
}
