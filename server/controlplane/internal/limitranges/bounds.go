package limitranges

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"
)

// checkPod returns an error for each bound that a pod or one of its containers exceeds.
func checkPod(pod *corev1.Pod, limits []corev1.LimitRangeItem) error {
	var errs []error
	for _, item := range limits {
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
				errs = append(errs, check(item, c.Resources.Requests, c.Resources.Limits)...)
			}
		case corev1.LimitTypePod:
			options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
			errs = append(errs, check(item, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// checkClaim returns an error for each bound that the requests of a claim exceed.
func checkClaim(claim *corev1.PersistentVolumeClaim, limits []corev1.LimitRangeItem) error {
	var errs []error
	for _, item := range limits {
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		requests := claim.Spec.Resources.Requests
		for _, name := range sorted(item.Min) {
			errs = append(errs, checkMin(item.Type, name, item.Min[name], requests, nil))
		}
		for _, name := range sorted(item.Max) {
			errs = append(errs, checkMaxRequest(item.Type, name, item.Max[name], requests))
		}
	}
	return utilerrors.NewAggregate(errs)
}

// check returns an error for each bound that requests and limits exceed.
func check(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	for _, name := range sorted(item.Min) {
		errs = append(errs, checkMin(item.Type, name, item.Min[name], requests, limits))
	}
	for _, name := range sorted(item.Max) {
		errs = append(errs, checkMax(item.Type, name, item.Max[name], requests, limits))
	}
	for _, name := range sorted(item.MaxLimitRequestRatio) {
		errs = append(errs, checkRatio(item.Type, name, item.MaxLimitRequestRatio[name], requests, limits))
	}
	return errs
}

func sorted(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

func checkMin(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests,
	limits corev1.ResourceList) error {
	request, requested := requests[name]
	limit, limited := limits[name]
	prefix := fmt.Sprintf("minimum %s usage per %s is %s", name, of, bound.String())
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", prefix)
	case compare(request, bound) < 0:
		return fmt.Errorf("%s, but request is %s", prefix, request.String())
	case limited && compare(limit, bound) < 0:
		return fmt.Errorf("%s, but limit is %s", prefix, limit.String())
	}
	return nil
}

func checkMax(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests,
	limits corev1.ResourceList) error {
	request, requested := requests[name]
	limit, limited := limits[name]
	prefix := fmt.Sprintf("maximum %s usage per %s is %s", name, of, bound.String())
	switch {
	case !limited:
		return fmt.Errorf("%s.  No limit is specified", prefix)
	case compare(limit, bound) > 0:
		return fmt.Errorf("%s, but limit is %s", prefix, limit.String())
	case requested && compare(request, bound) > 0:
		return fmt.Errorf("%s, but request is %s", prefix, request.String())
	}
	return nil
}

func checkMaxRequest(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity,
	requests corev1.ResourceList) error {
	request, requested := requests[name]
	prefix := fmt.Sprintf("maximum %s usage per %s is %s", name, of, bound.String())
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", prefix)
	case compare(request, bound) > 0:
		return fmt.Errorf("%s, but request is %s", prefix, request.String())
	}
	return nil
}

func checkRatio(of corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests,
	limits corev1.ResourceList) error {
	request, limit := requests[name], limits[name]
	prefix := fmt.Sprintf("%s max limit to request ratio per %s is %s", name, of, bound.String())
	if request.IsZero() {
		return fmt.Errorf("%s, but no request is specified or request is 0", prefix)
	}
	if limit.IsZero() {
		return fmt.Errorf("%s, but no limit is specified or limit is 0", prefix)
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > bound.AsApproximateFloat64() {
		return fmt.Errorf("%s, but provided ratio is %f", prefix, ratio)
	}
	return nil
}

// compare compares quantities in thousandths, to which Kubernetes rounds them up.
func compare(a, b resource.Quantity) int {
	if a.Value() > resource.MaxMilliValue || b.Value() > resource.MaxMilliValue {
		return a.Cmp(b)
	}
	x, y := a.MilliValue(), b.MilliValue()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}
