package columns

import (
	"cmp"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var flowcontrolViews = map[schema.GroupResource]view{
	flowcontrolv1.Resource("flowschemas"): ordered(show(
		func(s *flowcontrolv1.FlowSchema) []any {
			method := none
			if s.Spec.DistinguisherMethod != nil {
				method = string(s.Spec.DistinguisherMethod.Type)
			}
			return []any{s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method, age(s),
				missingLevel(s)}
		},
		nameColumn,
		text("PriorityLevel", described(flowcontrolv1.PriorityLevelConfigurationReference{}, "name")),
		text("MatchingPrecedence", described(flowcontrolv1.FlowSchemaSpec{}, "matchingPrecedence")),
		text("DistinguisherMethod", described(flowcontrolv1.FlowSchemaSpec{}, "distinguisherMethod")),
		ageColumn,
		text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
	), byPrecedence),
	flowcontrolv1.Resource("prioritylevelconfigurations"): show(
		func(l *flowcontrolv1.PriorityLevelConfiguration) []any {
			var shares, queues, hand, length any = none, none, none, none
			if limited := l.Spec.Limited; limited != nil {
				shares = int64(deref(limited.NominalConcurrencyShares, 0))
				if q := limited.LimitResponse.Queuing; q != nil {
					queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
				}
			}
			return []any{l.Name, string(l.Spec.Type), shares, queues, hand, length, age(l)}
		},
		nameColumn,
		text("Type", described(flowcontrolv1.PriorityLevelConfigurationSpec{}, "type")),
		text("NominalConcurrencyShares", described(flowcontrolv1.LimitedPriorityLevelConfiguration{},
			"nominalConcurrencyShares")),
		text("Queues", described(flowcontrolv1.QueuingConfiguration{}, "queues")),
		text("HandSize", described(flowcontrolv1.QueuingConfiguration{}, "handSize")),
		text("QueueLengthLimit", described(flowcontrolv1.QueuingConfiguration{}, "queueLengthLimit")),
		ageColumn,
	),
}

// byPrecedence orders FlowSchemas as requests are matched to them.
func byPrecedence(a, b *flowcontrolv1.FlowSchema) int {
	return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
}

// missingLevel returns the status of the condition Dangling.
func missingLevel(s *flowcontrolv1.FlowSchema) string {
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}
