package builtin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateTolerations checks the keys, values and effects of tolerations. kube-apiserver reports a wrong value at the
// operator.
func validateTolerations(at *field.Path, tolerations []corev1.Toleration) (errs field.ErrorList) {
	for i, t := range tolerations {
		here := at.Index(i)
		operator := here.Child("operator")
		if t.Key != "" {
			errs = append(errs, invalids(here.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(operator, t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(here.Child("effect"), t.Effect,
				"effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if messages := validation.IsValidLabelValue(t.Value); len(messages) > 0 {
				errs = append(errs, field.Invalid(operator, t.Value, strings.Join(messages, ";")))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(operator, t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt: // of a feature that is off
			errs = append(errs, field.NotSupported(operator, t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt,
					corev1.TolerationOpGt}))
		default:
			errs = append(errs, oneOf(operator, t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(here.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule,
				corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

// validateGates checks the names of scheduling gates.
func validateGates(at *field.Path, gates []corev1.PodSchedulingGate) (errs field.ErrorList) {
	for i, g := range gates {
		errs = append(errs, invalids(at.Index(i), g.Name, validation.IsQualifiedName(g.Name))...)
		if slices.Contains(gates[:i], g) {
			errs = append(errs, field.Duplicate(at.Index(i), g.Name))
		}
	}
	return errs
}
