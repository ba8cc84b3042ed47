package columns

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var apiregistrationViews = map[schema.GroupResource]view{
	apiregistrationv1.Resource("apiservices"): show(
		func(s *apiregistrationv1.APIService) []any {
			service := "Local"
			if at := s.Spec.Service; at != nil {
				service = at.Namespace + "/" + at.Name
			}
			return []any{s.Name, service, availability(s), age(s)}
		},
		nameColumn,
		text("Service", "The reference to the service that hosts this API endpoint."),
		text("Available", "Whether this service is available."),
		ageColumn,
	),
}

// availability returns the status of the condition Available, with the reason unless it is true.
func availability(s *apiregistrationv1.APIService) string {
	for _, c := range s.Status.Conditions {
		if c.Type != apiregistrationv1.Available {
			continue
		}
		if c.Status == apiregistrationv1.ConditionTrue || c.Reason == "" {
			return string(c.Status)
		}
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
	return string(apiregistrationv1.ConditionUnknown)
}
