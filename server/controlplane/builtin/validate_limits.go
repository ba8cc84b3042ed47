package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/resourcename"
)

// validateLimitRange checks that each type has one item, whose amounts fit together.
func validateLimitRange(r *corev1.LimitRange) (errs field.ErrorList) {
	at := field.NewPath("spec", "limits")
	seen := map[corev1.LimitType]bool{}
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		errs = append(errs, validateLimitType(at.Index(i).Child("type"), item.Type)...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validateLimits(at.Index(i), item)...)
	}
	return errs
}

func validateLimitType(at *field.Path, kind corev1.LimitType) field.ErrorList {
	errs := invalids(at, kind, validation.IsQualifiedName(string(kind)))
	standard := kind == corev1.LimitTypePod || kind == corev1.LimitTypeContainer ||
		kind == corev1.LimitTypePersistentVolumeClaim
	if len(errs) == 0 && !strings.Contains(string(kind), "/") && !standard {
		errs = append(errs, field.Invalid(at, kind, "must be a standard limit type or fully qualified"))
	}
	return errs
}

// validateLimits checks the amounts of one item.
func validateLimits(at *field.Path, item *corev1.LimitRangeItem) (errs field.ErrorList) {
	lists := map[string]corev1.ResourceList{
		"max": item.Max, "min": item.Min, "default": item.Default, "defaultRequest": item.DefaultRequest,
		"maxLimitRequestRatio": item.MaxLimitRequestRatio,
	}
	if item.Type == corev1.LimitTypePod {
		for _, name := range []string{"default", "defaultRequest"} {
			if len(lists[name]) > 0 {
				errs = append(errs, field.Forbidden(at.Child(name), "may not be specified when `type` is 'Pod'"))
			}
			delete(lists, name)
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, min := item.Min[corev1.ResourceStorage]
		_, max := item.Max[corev1.ResourceStorage]
		if !min && !max {
			errs = append(errs, field.Required(at.Child("limits"),
				"either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	names := map[corev1.ResourceName]bool{}
	for list, quantities := range lists {
		for name := range quantities {
			names[name] = true
			errs = append(errs, validateLimitedResource(at.Child(list).Key(string(name)), item.Type, name)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, validateLimit(at, name, lists)...)
	}
	return errs
}

// validateLimitedResource checks the name of a resource in an item of a type.
func validateLimitedResource(at *field.Path, kind corev1.LimitType, name corev1.ResourceName) field.ErrorList {
	if kind == corev1.LimitTypePod || kind == corev1.LimitTypeContainer {
		return validateContainerResource(at, name)
	}
	return validateResourceName(at, name)
}

// limitOrder are the pairs of amounts of which the first may not be greater than the second. An error is reported at a
// field, with the value of another one, as kube-apiserver does.
var limitOrder = []struct{ less, more, field, value, message string }{
	{"min", "max", "min", "min", "min value %s is greater than max value %s"},
	{"min", "defaultRequest", "defaultRequest", "defaultRequest", "min value %s is greater than default request value %s"},
	{"defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value %s is greater than max value %s"},
	{"defaultRequest", "default", "defaultRequest", "defaultRequest",
		"default request value %s is greater than default limit value %s"},
	{"min", "default", "default", "min", "min value %s is greater than default value %s"},
	{"default", "max", "default", "max", "default value %s is greater than max value %s"},
}

// validateLimit checks the amounts of one resource in an item against each other.
func validateLimit(at *field.Path, name corev1.ResourceName,
	lists map[string]corev1.ResourceList) (errs field.ErrorList) {
	for _, o := range limitOrder {
		less, haveLess := lists[o.less][name]
		more, haveMore := lists[o.more][name]
		if haveLess && haveMore && less.Cmp(more) > 0 {
			errs = append(errs, field.Invalid(at.Child(o.field).Key(string(name)), lists[o.value][name], fmt.Sprintf(o.message,
				less.String(), more.String())))
		}
	}
	if ratio, ok := lists["maxLimitRequestRatio"][name]; ok {
		errs = append(errs, validateRatio(at.Child("maxLimitRequestRatio").Key(string(name)), ratio, name, lists)...)
	}
	limit, haveLimit := lists["default"][name]
	request, haveRequest := lists["defaultRequest"][name]
	if haveLimit && haveRequest && limit.Cmp(request) != 0 && !resourcename.Overcommitted(name) {
		errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(string(name)), request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
	}
	return errs
}

// validateRatio checks that a limit may be a multiple of its request, and that the greatest limit and the least request
// allow the ratio.
func validateRatio(at *field.Path, ratio resource.Quantity, name corev1.ResourceName,
	lists map[string]corev1.ResourceList) (errs field.ErrorList) {
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	min, haveMin := lists["min"][name]
	max, haveMax := lists["max"][name]
	if !haveMin || !haveMax {
		return errs
	}
	// As kube-apiserver divides: with other roundings, an exact ratio would be refused.
	least, greatest, wanted := min.Value(), max.Value(), float64(ratio.Value())
	if least < resource.MaxMilliValue && greatest < resource.MaxMilliValue && ratio.Value() < resource.MaxMilliValue {
		least, greatest, wanted = min.MilliValue(), max.MilliValue(), float64(ratio.MilliValue())/1000
	}
	if most := float64(greatest) / float64(least); wanted > most {
		errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(),
			most)))
	}
	return errs
}
