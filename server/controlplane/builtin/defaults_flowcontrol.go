package builtin

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// addFlowDefaults registers the defaults of flow schemas and priority levels. Those of APIServices are
// k8s.io/kube-aggregator's.
func addFlowDefaults(scheme *runtime.Scheme) {
	byType[flowcontrolv1.FlowSchema](scheme, func(o *flowcontrolv1.FlowSchema) { fill(&o.Spec.MatchingPrecedence, 1000) })
	byType[flowcontrolv1.PriorityLevelConfiguration](scheme, func(o *flowcontrolv1.PriorityLevelConfiguration) {
		if exempt := o.Spec.Exempt; exempt != nil {
			point(&exempt.NominalConcurrencyShares, 0)
			point(&exempt.LendablePercent, 0)
		}
		limited := o.Spec.Limited
		if limited == nil {
			return
		}
		point(&limited.NominalConcurrencyShares, 30)
		point(&limited.LendablePercent, 0)
		if queuing := limited.LimitResponse.Queuing; queuing != nil {
			fill(&queuing.Queues, 64)
			fill(&queuing.HandSize, 8)
			fill(&queuing.QueueLengthLimit, 50)
		}
	})
}
