package columns

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var policyViews = map[schema.GroupResource]view{
	policyv1.Resource("poddisruptionbudgets"): show(
		func(budget *policyv1.PodDisruptionBudget) []any {
			return []any{
				budget.Name, budgetLimit(budget.Spec.MinAvailable), budgetLimit(budget.Spec.MaxUnavailable),
				int64(budget.Status.DisruptionsAllowed), age(budget),
			}
		},
		nameColumn,
		text("Min Available", described(policyv1.PodDisruptionBudgetSpec{}, "minAvailable")),
		text("Max Unavailable", described(policyv1.PodDisruptionBudgetSpec{}, "maxUnavailable")),
		integer("Allowed Disruptions", described(policyv1.PodDisruptionBudgetStatus{}, "disruptionsAllowed")),
		ageColumn,
	),
}

// budgetLimit returns a number or percentage, or N/A for the limit that a budget doesn't use.
func budgetLimit(limit *intstr.IntOrString) string {
	if limit == nil {
		return "N/A"
	}
	return limit.String()
}
