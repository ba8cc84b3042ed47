package columns

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var coordinationViews = map[schema.GroupResource]view{
	coordinationv1.Resource("leases"): show(
		func(lease *coordinationv1.Lease) []any {
			return []any{lease.Name, deref(lease.Spec.HolderIdentity, ""), age(lease)}
		},
		nameColumn,
		text("Holder", described(coordinationv1.LeaseSpec{}, "holderIdentity")),
		ageColumn,
	),
}
