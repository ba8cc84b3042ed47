package builtin

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // an image from scratch has no database of time zones

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateDeployment(d *appsv1.Deployment) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &d.Spec
	errs = append(errs, counts(at, count32("replicas", spec.Replicas), count32("minReadySeconds", &spec.MinReadySeconds),
		count32("revisionHistoryLimit", spec.RevisionHistoryLimit), count32("progressDeadlineSeconds",
			spec.ProgressDeadlineSeconds))...)
	errs = append(errs, validateSelected(at, "deployment", spec.Selector, &spec.Template)...)
	errs = append(errs, alwaysRestarted(at.Child("template", "spec"), "ReplicaSet", &spec.Template.Spec)...)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil && *deadline <= spec.MinReadySeconds {
		errs = append(errs, field.Invalid(at.Child("progressDeadlineSeconds"), *deadline,
			"must be greater than minReadySeconds"))
	}
	return append(errs, validateDeploymentStrategy(at.Child("strategy"), &spec.Strategy)...)
}

func validateDeploymentStrategy(at *field.Path, s *appsv1.DeploymentStrategy) (errs field.ErrorList) {
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			errs = append(errs, field.Forbidden(at.Child("rollingUpdate"),
				"may not be specified when strategy `type` is 'Recreate'"))
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil { // the default
			return nil
		}
		at, unavailable, surge := at.Child("rollingUpdate"), s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
		errs = append(errs, countOrPercent(at.Child("maxUnavailable"), unavailable)...)
		// it may exceed 100 %
		if surge != nil && (surge.Type == intstr.Int || len(validation.IsValidPercent(surge.StrVal)) > 0) {
			errs = append(errs, countOrPercent(at.Child("maxSurge"), surge)...)
		}
		if isZero(unavailable) && isZero(surge) {
			errs = append(errs, field.Invalid(at.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
		}
	default:
		errs = append(errs, field.NotSupported(at, s, []string{string(appsv1.RecreateDeploymentStrategyType),
			string(appsv1.RollingUpdateDeploymentStrategyType)}))
	}
	return errs
}

// isZero reports whether a number or percentage is set to none.
func isZero(n *intstr.IntOrString) bool {
	if n == nil {
		return false
	}
	scaled, err := intstr.GetScaledValueFromIntOrPercent(n, 100, false)
	return err == nil && scaled == 0
}

func validateReplicaSet(r *appsv1.ReplicaSet) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &r.Spec
	errs = append(errs, counts(at, count32("replicas", spec.Replicas), count32("minReadySeconds",
		&spec.MinReadySeconds))...)
	errs = append(errs, validateSelected(at, "deployment", spec.Selector, &spec.Template)...) // kube-apiserver's word
	return append(errs, alwaysRestarted(at.Child("template", "spec"), "ReplicaSet", &spec.Template.Spec)...)
}

// validateClaimTemplates checks the claims of a new StatefulSet. They cannot be changed.
func validateClaimTemplates(s *appsv1.StatefulSet) (errs field.ErrorList) {
	for i := range s.Spec.VolumeClaimTemplates {
		errs = append(errs, validateClaim(field.NewPath("spec", "volumeClaimTemplates").Index(i).Child("spec"),
			&s.Spec.VolumeClaimTemplates[i].Spec)...)
	}
	return errs
}

func validateStatefulSet(s *appsv1.StatefulSet) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &s.Spec
	errs = append(errs, counts(at, count32("replicas", spec.Replicas), count32("minReadySeconds",
		&spec.MinReadySeconds))...)
	if policy := spec.PodManagementPolicy; policy != appsv1.OrderedReadyPodManagement &&
		policy != appsv1.ParallelPodManagement {
		errs = append(errs, field.Invalid(at.Child("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateSelected(at, "statefulset", spec.Selector, templateWithClaims(spec))...)
	return append(errs, alwaysRestarted(at.Child("template", "spec"), "StatefulSet", &spec.Template.Spec)...)
}

// templateWithClaims returns a StatefulSet's template as its pods are: with the volumes of their claims, and without
// the names that the controller sets.
func templateWithClaims(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	template := spec.Template.DeepCopy()
	template.Spec.Subdomain, template.Spec.Hostname = "", ""
	claimed := map[string]bool{}
	var volumes []corev1.Volume
	for _, claim := range spec.VolumeClaimTemplates {
		if !claimed[claim.Name] {
			volumes = append(volumes, corev1.Volume{Name: claim.Name})
		}
		claimed[claim.Name] = true
	}
	for _, v := range template.Spec.Volumes {
		if !claimed[v.Name] {
			volumes = append(volumes, v)
		}
	}
	template.Spec.Volumes = volumes
	return template
}

func validateDaemonSet(d *appsv1.DaemonSet) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &d.Spec
	errs = append(errs, counts(at, count32("minReadySeconds", &spec.MinReadySeconds), count32("revisionHistoryLimit",
		spec.RevisionHistoryLimit))...)
	// Invalid label values are accepted: kube-apiserver accepts them in updates of sets that have them.
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector,
		metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}, at.Child("selector"))...)
	if spec.Selector != nil && len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at.Child("selector"), spec.Selector, "empty selector is invalid for daemonset"))
	}
	errs = append(errs, matchesTemplate(at.Child("template"), spec.Selector, &spec.Template, true)...)
	errs = append(errs, validatePodTemplate(at.Child("template"), &spec.Template)...)
	return append(errs, alwaysRestarted(at.Child("template", "spec"), "DaemonSet", &spec.Template.Spec)...)
}

func validateReplicationController(c *corev1.ReplicationController) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &c.Spec
	errs = append(errs, counts(at, count32("replicas", spec.Replicas), count32("minReadySeconds",
		&spec.MinReadySeconds))...)
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(at.Child("selector"), ""))
	}
	if spec.Template == nil {
		return append(errs, field.Required(at.Child("template"), ""))
	}
	// kube-apiserver does not check the values of this selector, and compares also one that no label can match.
	if selector := labels.SelectorFromSet(spec.Selector); !selector.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, unmatched(at.Child("template"), spec.Template))
	}
	errs = append(errs, validatePodTemplate(at.Child("template"), spec.Template)...)
	return append(errs, alwaysRestarted(at.Child("template", "spec"), "ReplicationController", &spec.Template.Spec)...)
}

// validateSelected checks a selector, which must not be empty, and the template that it must match.
func validateSelected(at *field.Path, kind string, selector *metav1.LabelSelector,
	template *corev1.PodTemplateSpec) (errs field.ErrorList) {
	if selector == nil {
		errs = append(errs, field.Required(at.Child("selector"), ""))
	} else {
		errs = append(errs, metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{},
			at.Child("selector"))...)
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			errs = append(errs, field.Invalid(at.Child("selector"), selector, fmt.Sprintf("empty selector is invalid for %s",
				kind)))
		}
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		detail := "invalid label selector"
		if kind == "statefulset" {
			detail = ""
		}
		return append(errs, field.Invalid(at.Child("selector"), selector, detail))
	}
	errs = append(errs, matchesTemplate(at.Child("template"), selector, template, false)...)
	return append(errs, validatePodTemplate(at.Child("template"), template)...)
}

// matchesTemplate returns an error if a selector, which is valid, does not match a template's labels. A selector that
// is empty matches unless none says that nothing matches it when it is nil.
func matchesTemplate(at *field.Path, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec,
	none bool) field.ErrorList {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || !none && parsed.Empty() || parsed.Matches(labels.Set(template.Labels)) {
		return nil
	}
	return field.ErrorList{unmatched(at, template)}
}

func unmatched(at *field.Path, template *corev1.PodTemplateSpec) *field.Error {
	return field.Invalid(at.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`")
}

// alwaysRestarted checks the pods of a controller that keeps them running.
func alwaysRestarted(at *field.Path, kind string, spec *corev1.PodSpec) (errs field.ErrorList) {
	errs = append(errs, oneOf(at.Child("restartPolicy"), spec.RestartPolicy, corev1.RestartPolicyAlways)...)
	if spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(at.Child("activeDeadlineSeconds"),
			fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind)))
	}
	return errs
}

// validateJob also checks the selector, which must match the pods of this Job alone, unless it is the user's.
func validateJob(j *batchv1.Job) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &j.Spec
	if (spec.ManualSelector == nil || !*spec.ManualSelector) && spec.Selector != nil {
		errs = append(errs, validateGenerated(at, j)...)
	}
	errs = append(errs, validateJobSpec(at, spec)...)
	if spec.Selector == nil {
		errs = append(errs, field.Required(at.Child("selector"), ""))
	} else {
		errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector,
			metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	}
	errs = append(errs, matchesTemplate(at.Child("template"), spec.Selector, &spec.Template, true)...)
	if spec.CompletionMode == nil || *spec.CompletionMode != batchv1.IndexedCompletion || spec.Completions == nil ||
		*spec.Completions < 1 {
		return errs
	}
	if last := fmt.Sprintf("%s-%d", j.Name, *spec.Completions-1); len(validation.IsDNS1123Label(last)) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name,
			"will not able to create pod with invalid DNS label: "+last))
	}
	return errs
}

// validateGenerated checks that the labels and the selector are those that the server generates.
func validateGenerated(at *field.Path, j *batchv1.Job) (errs field.ErrorList) {
	want := generatedLabels(j)
	for _, name := range []string{"controller-uid", "job-name", batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		at := at.Child("template", "metadata", "labels").Key(name)
		switch value, ok := j.Spec.Template.Labels[name]; {
		case !ok:
			errs = append(errs, field.Required(at, fmt.Sprintf("must be '%s'", want[name])))
		case value != want[name]:
			errs = append(errs, field.Invalid(at, j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", want[name])))
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err == nil && !selector.Matches(labels.Set(want)) {
		errs = append(errs, field.Invalid(at.Child("selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateCronJob checks a CronJob.
func validateCronJob(c *batchv1.CronJob) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &c.Spec
	if len(c.Name) > 52 { // the controller appends 11 characters
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"))
	}
	errs = append(errs, validateSchedule(at.Child("schedule"), spec.Schedule)...)
	if spec.TimeZone != nil {
		errs = append(errs, validateTimeZone(at.Child("timeZone"), *spec.TimeZone)...)
	}
	errs = append(errs, oneOf(at.Child("concurrencyPolicy"), spec.ConcurrencyPolicy, batchv1.AllowConcurrent,
		batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, counts(at, count64("startingDeadlineSeconds", spec.StartingDeadlineSeconds),
		count32("successfulJobsHistoryLimit", spec.SuccessfulJobsHistoryLimit), count32("failedJobsHistoryLimit",
			spec.FailedJobsHistoryLimit))...)
	return append(errs, validateJobSpec(at.Child("jobTemplate", "spec"), &spec.JobTemplate.Spec)...)
}

// validateSchedule checks a schedule of cron, which names no time zone.
func validateSchedule(at *field.Path, schedule string) (errs field.ErrorList) {
	if schedule == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if err := parseSchedule(schedule); err != nil {
		errs = append(errs, field.Invalid(at, schedule, err.Error()))
	}
	if strings.Contains(schedule, "TZ") {
		errs = append(errs, field.Invalid(at, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	}
	return errs
}

// parseSchedule returns the parser's error; it panics for TZ= without a schedule.
func parseSchedule(schedule string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

// timeZonePart is a part of the name of a time zone (https://data.iana.org/time-zones/theory.html#naming).
var timeZonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func validateTimeZone(at *field.Path, zone string) (errs field.ErrorList) {
	if zone == "" {
		return field.ErrorList{field.Invalid(at, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || !timeZonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(at, zone, "unknown time zone "+zone)}
		}
	}
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(at, zone,
			"timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(at, zone, err.Error()))
	}
	return errs
}

func validateJobSpec(at *field.Path, spec *batchv1.JobSpec) (errs field.ErrorList) {
	errs = append(errs, counts(at, count32("parallelism", spec.Parallelism), count32("completions", spec.Completions),
		count64("activeDeadlineSeconds", spec.ActiveDeadlineSeconds), count32("backoffLimit", spec.BackoffLimit),
		count32("ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished))...)
	if mode := spec.CompletionMode; mode != nil {
		errs = append(errs, oneOf(at.Child("completionMode"), *mode, batchv1.NonIndexedCompletion,
			batchv1.IndexedCompletion)...)
		if *mode == batchv1.IndexedCompletion && spec.Completions == nil {
			errs = append(errs, field.Required(at.Child("completions"), "when completion mode is Indexed"))
		}
	}
	errs = append(errs, validatePodTemplate(at.Child("template"), &spec.Template)...)
	policy := at.Child("template", "spec", "restartPolicy")
	if spec.Template.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return append(errs, field.Required(policy, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure,
			corev1.RestartPolicyNever)))
	}
	return append(errs, oneOf(policy, spec.Template.Spec.RestartPolicy, corev1.RestartPolicyOnFailure,
		corev1.RestartPolicyNever)...)
}

// count is a number of a field that must not be negative; nil if it is not set.
type count struct {
	field string
	value *int64
}

func count64(field string, value *int64) count { return count{field, value} }

func count32(field string, value *int32) count {
	if value == nil {
		return count{field: field}
	}
	wide := int64(*value)
	return count{field, &wide}
}

func counts(at *field.Path, all ...count) (errs field.ErrorList) {
	for _, c := range all {
		if c.value != nil {
			errs = append(errs, apivalidation.ValidateNonnegativeField(*c.value, at.Child(c.field))...)
		}
	}
	return errs
}
