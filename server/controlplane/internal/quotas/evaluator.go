package quotas

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// lister returns how to list the objects of a resource in a namespace.
type lister func(schema.GroupResource) generic.ListFuncByNamespace

// evaluators returns the evaluators of resources that have more than a count. Admission lists nothing.
func evaluators(list lister) []quota.Evaluator {
	all := []quota.Evaluator{newPods(list), newServices(list), newClaims(list)}
	for _, alias := range []corev1.ResourceName{corev1.ResourceConfigMaps, corev1.ResourceQuotas,
		corev1.ResourceReplicationControllers, corev1.ResourceSecrets} {
		of := corev1.Resource(string(alias))
		all = append(all, generic.NewObjectCountEvaluator(of, list(of), alias))
	}
	return all
}

// ignored are the resources that quotas never count: those that are not stored, and events.
var ignored = map[schema.GroupResource]struct{}{
	{Resource: "bindings"}:                                                 {},
	{Resource: "componentstatuses"}:                                        {},
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             {},
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       {},
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      {},
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  {},
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: {},
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   {},
	{Resource: "events"}:                         {},
	{Group: "events.k8s.io", Resource: "events"}: {},
}

// evaluator is how objects of one resource count.
type evaluator struct {
	resource schema.GroupResource
	list     generic.ListFuncByNamespace
	// matching selects the names of quotas that objects of the resource use.
	matching func([]corev1.ResourceName) []corev1.ResourceName
	// handles reports whether a write may change the usage.
	handles func(admission.Attributes) bool
	// constraints returns an error if an object lacks what quotas with these names require.
	constraints func([]corev1.ResourceName, runtime.Object) error
	inScope     generic.MatchesScopeFunc
	usage       generic.UsageFunc
	// changes reports whether an update may change the usage, or moves an object to another scope.
	changes func(old, obj runtime.Object) bool
}

var _ quota.Evaluator = (*evaluator)(nil)

func (e *evaluator) GroupResource() schema.GroupResource { return e.resource }

func (e *evaluator) Handles(a admission.Attributes) bool { return e.handles(a) }

func (e *evaluator) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	if e.constraints == nil {
		return nil
	}
	return e.constraints(required, item)
}

func (e *evaluator) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, e.matching, e.inScope)
}

func (e *evaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return e.matching(names)
}

func (e *evaluator) MatchingScopes(item runtime.Object,
	scopes []corev1.ScopedResourceSelectorRequirement) (matching []corev1.ScopedResourceSelectorRequirement, err error) {
	for _, scope := range scopes {
		matches, err := e.inScope(scope, item)
		if err != nil {
			return nil, err
		}
		if matches {
			matching = append(matching, scope)
		}
	}
	return matching, nil
}

// UncoveredQuotaScopes returns none: no scope requires a quota, which needs a configuration file of the plugin.
func (e *evaluator) UncoveredQuotaScopes(_,
	_ []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return nil, nil
}

func (e *evaluator) Usage(item runtime.Object) (corev1.ResourceList, error) { return e.usage(item) }

func (e *evaluator) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, e.list, e.inScope, e.usage)
}

func count(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
