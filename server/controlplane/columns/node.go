package columns

import (
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var nodeViews = map[schema.GroupResource]view{
	nodev1.Resource("runtimeclasses"): show(
		func(class *nodev1.RuntimeClass) []any { return []any{class.Name, class.Handler, age(class)} },
		nameColumn,
		text("Handler", described(nodev1.RuntimeClass{}, "handler")),
		ageColumn,
	),
}
