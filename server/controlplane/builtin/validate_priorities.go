package builtin

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// systemPrefix begins the names of the system's priority classes.
	systemPrefix = "system-"
	// maxPriority is the highest priority of other classes.
	maxPriority = 1_000_000_000
)

// SystemPriorityClasses returns the priority classes that every cluster has.
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	policy := corev1.PreemptLowerPriority
	return []*schedulingv1.PriorityClass{
		{
			ObjectMeta:       metav1.ObjectMeta{Name: systemPrefix + "node-critical"},
			Value:            2*maxPriority + 1000,
			Description:      "Used for system critical pods that must not be moved from their current node.",
			PreemptionPolicy: &policy,
		},
		{
			ObjectMeta:       metav1.ObjectMeta{Name: systemPrefix + "cluster-critical"},
			Value:            2 * maxPriority,
			Description:      "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
			PreemptionPolicy: &policy,
		},
	}
}

func validatePriorityClass(class *schedulingv1.PriorityClass) (errs field.ErrorList) {
	if strings.HasPrefix(class.Name, systemPrefix) {
		if problem := differsFromSystemClass(class); problem != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with '"+systemPrefix+
				"' prefix are reserved for system use only. error: "+problem))
		}
	} else if class.Value > maxPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %v", maxPriority)))
	}
	switch policy := class.PreemptionPolicy; {
	case policy == nil:
	case *policy == "":
		errs = append(errs, field.Required(field.NewPath("preemptionPolicy"), ""))
	default:
		errs = append(errs, oneOf(field.NewPath("preemptionPolicy"), *policy, corev1.PreemptLowerPriority,
			corev1.PreemptNever)...)
	}
	return errs
}

// differsFromSystemClass returns how a class differs from the system's class of its name.
func differsFromSystemClass(class *schedulingv1.PriorityClass) string {
	for _, known := range SystemPriorityClasses() {
		switch {
		case known.Name != class.Name:
		case known.Value != class.Value:
			return fmt.Sprintf("value of %v PriorityClass must be %v", known.Name, known.Value)
		case known.GlobalDefault != class.GlobalDefault:
			return fmt.Sprintf("globalDefault of %v PriorityClass must be %v", known.Name, known.GlobalDefault)
		default:
			return ""
		}
	}
	return class.Name + " is not a known system priority class"
}
