package builtin

import (
	"fmt"
	"math"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePod checks what validatePodSpec does, and what kube-apiserver checks in pods only and not in templates.
func validatePod(pod *corev1.Pod) field.ErrorList {
	at := field.NewPath("spec")
	errs := validatePodSpec(at, &pod.Spec)
	errs = append(errs, trimmedImages(at.Child("containers"), pod.Spec.Containers)...)
	return append(errs, trimmedImages(at.Child("initContainers"), pod.Spec.InitContainers)...)
}

func trimmedImages(at *field.Path, containers []corev1.Container) (errs field.ErrorList) {
	for i, c := range containers {
		if strings.TrimSpace(c.Image) != c.Image {
			errs = append(errs, field.Invalid(at.Index(i).Child("image"), c.Image,
				"must not have leading or trailing whitespace"))
		}
	}
	return errs
}

// validatePodTemplate checks the labels and the specification of the pods to create.
func validatePodTemplate(at *field.Path, template *corev1.PodTemplateSpec) field.ErrorList {
	errs := metavalidation.ValidateLabels(template.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, at.Child("annotations"))...)
	return append(errs, validatePodSpec(at.Child("spec"), &template.Spec)...)
}

// validatePodSpec checks containers, the names of volumes, policies, tolerations, and the fields that are names or
// numbers. It does not check affinities, security contexts, probes, the other sources of volumes and the features of
// single operating systems.
func validatePodSpec(at *field.Path, spec *corev1.PodSpec) (errs field.ErrorList) {
	volumes, invalid := validateVolumes(at.Child("volumes"), spec.Volumes)
	errs = append(errs, invalid...)
	errs = append(errs, validateContainers(at, spec, volumes)...)
	errs = append(errs, oneOf(at.Child("restartPolicy"), spec.RestartPolicy, corev1.RestartPolicyAlways,
		corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, oneOf(at.Child("dnsPolicy"), spec.DNSPolicy, corev1.DNSClusterFirstWithHostNet,
		corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, at.Child("nodeSelector"))...)
	errs = append(errs, validateTolerations(at.Child("tolerations"), spec.Tolerations)...)
	errs = append(errs, validateGates(at.Child("schedulingGates"), spec.SchedulingGates)...)
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		errs = append(errs, field.Invalid(at.Child("activeDeadlineSeconds"), *deadline, validation.InclusiveRangeError(1,
			math.MaxInt32)))
	}
	for _, name := range []struct {
		field, value string
		rule         func(string) []string
	}{
		{"serviceAccountName", spec.ServiceAccountName, validation.IsDNS1123Subdomain},
		{"nodeName", spec.NodeName, validation.IsDNS1123Subdomain},
		{"priorityClassName", spec.PriorityClassName, validation.IsDNS1123Subdomain},
		{"hostname", spec.Hostname, validation.IsDNS1123Label},
		{"subdomain", spec.Subdomain, validation.IsDNS1123Label},
	} {
		if name.value != "" {
			errs = append(errs, invalids(at.Child(name.field), name.value, name.rule(name.value))...)
		}
	}
	return errs
}

// validateVolumes checks the names of volumes, and paths of the host. It returns the set of valid names.
func validateVolumes(at *field.Path, volumes []corev1.Volume) (valid map[string]bool, errs field.ErrorList) {
	valid = map[string]bool{}
	for i, v := range volumes {
		here := at.Index(i).Child("name")
		before := len(errs)
		if v.Name == "" {
			errs = append(errs, field.Required(here, ""))
		} else {
			errs = append(errs, invalids(here, v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		if valid[v.Name] {
			errs = append(errs, field.Duplicate(here, v.Name))
		}
		if len(errs) == before {
			valid[v.Name] = true
		}
		if v.HostPath != nil {
			errs = append(errs, validateHostPath(at.Index(i).Child("hostPath"), v.HostPath)...)
		}
	}
	return valid, errs
}

// updatablePodFields are those that kube-apiserver names in its message.
const updatablePodFields = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// podUpdate allows another image, a shorter deadline, more tolerations, and fewer scheduling gates. A pod with
// scheduling gates may be restricted to fewer nodes.
func podUpdate(obj, old runtime.Object) (errs field.ErrorList) {
	at := field.NewPath("spec")
	is, was := &obj.(*corev1.Pod).Spec, &old.(*corev1.Pod).Spec
	if equality.Semantic.DeepEqual(is, was) { // most updates are of the status
		return nil
	}
	is = is.DeepCopy()
	for _, list := range []struct {
		name    string
		is, was []corev1.Container
	}{{"containers", is.Containers, was.Containers}, {"initContainers", is.InitContainers, was.InitContainers}} {
		if len(list.is) != len(list.was) {
			return append(errs, field.Forbidden(at.Child(list.name), "pod updates may not add or remove containers"))
		}
		for i := range list.is {
			list.is[i].Image = list.was[i].Image
		}
	}
	errs = append(errs, deadlineUpdate(at.Child("activeDeadlineSeconds"), is.ActiveDeadlineSeconds,
		was.ActiveDeadlineSeconds)...)
	errs = append(errs, tolerationsUpdate(at.Child("tolerations"), is.Tolerations, was.Tolerations)...)
	errs = append(errs, gatesUpdate(at.Child("schedulingGates"), is.SchedulingGates, was.SchedulingGates)...)
	is.ActiveDeadlineSeconds, is.Tolerations, is.SchedulingGates = was.ActiveDeadlineSeconds, was.Tolerations,
		was.SchedulingGates
	if before, now := was.TerminationGracePeriodSeconds, is.TerminationGracePeriodSeconds; before != nil && now != nil &&
		*before < 0 && *now == 1 {
		is.TerminationGracePeriodSeconds = before
	}
	if len(was.SchedulingGates) > 0 {
		errs = append(errs, gatedPodUpdate(at, is, was)...)
		is.NodeSelector = was.NodeSelector
		if !equality.Semantic.DeepEqual(nodeAffinityOf(is), nodeAffinityOf(was)) {
			is.Affinity = withNodeAffinityOf(is.Affinity, was.Affinity)
		}
	}
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("pod updates may not change fields other than %s\n%v",
			updatablePodFields, diff.Diff(*was, *is))))
	}
	return errs
}

// gatedPodUpdate returns errors unless labels and requirements were only added to those that a node must have.
func gatedPodUpdate(at *field.Path, is, was *corev1.PodSpec) (errs field.ErrorList) {
	for key, value := range was.NodeSelector {
		if now, ok := is.NodeSelector[key]; !ok || now != value {
			errs = append(errs, field.Invalid(at.Child("nodeSelector"), is.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	terms, before := requiredTerms(is), requiredTerms(was)
	at = at.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(before) > 0 && len(terms) != len(before) {
		return append(errs, field.Invalid(at, terms,
			"no additions/deletions to non-empty NodeSelectorTerms list are allowed"))
	}
	for i, term := range before {
		now := terms[i]
		empty := len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0
		if empty && len(now.MatchExpressions)+len(now.MatchFields) > 0 ||
			!beginsWith(now.MatchExpressions, term.MatchExpressions) || !beginsWith(now.MatchFields, term.MatchFields) {
			errs = append(errs, field.Invalid(at.Index(i), now, "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

func beginsWith(all, first []corev1.NodeSelectorRequirement) bool {
	return len(all) >= len(first) && equality.Semantic.DeepEqual(all[:len(first)], first)
}

func nodeAffinityOf(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

// requiredTerms returns the terms of which a node must match one.
func requiredTerms(spec *corev1.PodSpec) []corev1.NodeSelectorTerm {
	affinity := nodeAffinityOf(spec)
	if affinity == nil || affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// withNodeAffinityOf returns an affinity with another one's affinity to nodes.
func withNodeAffinityOf(is, was *corev1.Affinity) *corev1.Affinity {
	with := corev1.Affinity{}
	if is != nil {
		with = *is
	}
	with.NodeAffinity = nil
	if was != nil {
		with.NodeAffinity = was.NodeAffinity
	}
	if was == nil && with == (corev1.Affinity{}) {
		return nil
	}
	return &with
}

func deadlineUpdate(at *field.Path, is, was *int64) field.ErrorList {
	switch {
	case was == nil:
		return nil
	case is == nil:
		return field.ErrorList{field.Invalid(at, is, "must not update from a positive integer to nil value")}
	case *is > *was:
		return field.ErrorList{field.Invalid(at, *is, "must be less than or equal to previous value")}
	}
	return nil
}

func tolerationsUpdate(at *field.Path, is, was []corev1.Toleration) field.ErrorList {
	for _, old := range was {
		kept := false
		for _, t := range is {
			t.TolerationSeconds = old.TolerationSeconds
			kept = kept || reflect.DeepEqual(t, old)
		}
		if !kept {
			return field.ErrorList{field.Forbidden(at, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

func gatesUpdate(at *field.Path, is, was []corev1.PodSchedulingGate) (errs field.ErrorList) {
	known := map[string]bool{}
	for _, gate := range was {
		known[gate.Name] = true
	}
	for i, gate := range is {
		if !known[gate.Name] {
			errs = append(errs, field.Forbidden(at.Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	return errs
}
