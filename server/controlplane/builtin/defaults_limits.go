package builtin

import corev1 "k8s.io/api/core/v1"

// defaultLimitRange completes the defaults of containers: the limit is the maximum, and the request is the limit, or
// else the minimum.
func defaultLimitRange(r *corev1.LimitRange) {
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		fillQuantities(&item.Default, item.Max)
		fillQuantities(&item.DefaultRequest, item.Default)
		fillQuantities(&item.DefaultRequest, item.Min)
	}
}

// fillQuantities adds the quantities that a list doesn't have.
func fillQuantities(list *corev1.ResourceList, from corev1.ResourceList) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	for name, quantity := range from {
		if _, ok := (*list)[name]; !ok {
			(*list)[name] = quantity.DeepCopy()
		}
	}
}
