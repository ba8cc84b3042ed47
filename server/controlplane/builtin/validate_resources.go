package builtin

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/resourcename"
)

// validateResources checks the names and amounts of what a container requests, and that no request exceeds its limit.
func validateResources(at *field.Path, r *corev1.ResourceRequirements) (errs field.ErrorList) {
	limits, requests := at.Child("limits"), at.Child("requests")
	var measures, hugePages bool // there is CPU or memory; there are huge pages
	for name, limit := range r.Limits {
		errs = append(errs, validateAmount(limits.Key(string(name)), name, limit)...)
		measures, hugePages = measures || measuresPod(name), hugePages || resourcename.HugePages(name)
	}
	for name, request := range r.Requests {
		errs = append(errs, validateAmount(requests.Key(string(name)), name, request)...)
		measures, hugePages = measures || measuresPod(name), hugePages || resourcename.HugePages(name)
		limit, limited := r.Limits[name]
		switch {
		case !limited && !resourcename.Overcommitted(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		case limited && request.Cmp(limit) != 0 && !resourcename.Overcommitted(name):
			errs = append(errs, field.Invalid(requests, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name,
				limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	if hugePages && !measures {
		errs = append(errs, field.Forbidden(at, "HugePages require cpu or memory"))
	}
	return errs
}

// validateAmount checks a resource of a container.
func validateAmount(at *field.Path, name corev1.ResourceName, amount resource.Quantity) field.ErrorList {
	errs := validateContainerResource(at, name)
	if amount.Sign() < 0 {
		errs = append(errs, field.Invalid(at, amount.String(), apivalidation.IsNegativeErrorMsg))
	}
	if (slices.Contains(counted, name) || resourcename.Extended(name)) && amount.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, amount, "must be an integer"))
	}
	if resourcename.HugePages(name) && !ofWholePages(name, amount) {
		errs = append(errs, field.Invalid(at, amount.String(), fmt.Sprintf("%s is not positive integer multiple of %s",
			amount.String(), name)))
	}
	return errs
}

// validateContainerResource checks the name of a resource that a container requests.
func validateContainerResource(at *field.Path, name corev1.ResourceName) field.ErrorList {
	errs := validateResourceName(at, name)
	switch {
	case !strings.Contains(string(name), "/"):
		if !measuresPod(name) && name != corev1.ResourceEphemeralStorage && !resourcename.HugePages(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
		}
	case !resourcename.Native(name) && !resourcename.Extended(name):
		errs = append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// validateResourceName checks the name of a resource anywhere.
func validateResourceName(at *field.Path, name corev1.ResourceName) field.ErrorList {
	errs := invalids(at, name, validation.IsQualifiedName(string(name)))
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !isQuotaResource(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

// measuresPod reports whether a resource determines the quality of service of a pod.
func measuresPod(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory
}

// ofWholePages reports whether an amount is of whole pages of the size in the resource's name.
func ofWholePages(name corev1.ResourceName, amount resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && amount.Value()%size.Value() == 0
}
