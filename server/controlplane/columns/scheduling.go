package columns

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var schedulingViews = map[schema.GroupResource]view{
	schedulingv1.Resource("priorityclasses"): show(
		func(class *schedulingv1.PriorityClass) []any {
			return []any{class.Name, int64(class.Value), class.GlobalDefault, age(class),
				string(deref(class.PreemptionPolicy, ""))}
		},
		nameColumn,
		integer("Value", described(schedulingv1.PriorityClass{}, "value")),
		boolean("Global-Default", described(schedulingv1.PriorityClass{}, "globalDefault")),
		ageColumn,
		text("PreemptionPolicy", described(schedulingv1.PriorityClass{}, "preemptionPolicy")),
	),
}
