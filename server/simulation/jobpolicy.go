package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// judgement is what the podFailurePolicy of a Job says of a failed pod.
type judgement struct {
	counts    bool   // towards the limits of failures
	failIndex bool   // the pod's index does not run again
	failJob   string // why the Job fails, "" if it does not
}

// judge applies the first rule that a failed pod matches.
func (a *attempt) judge(pod *corev1.Pod) judgement {
	if a.Spec.PodFailurePolicy == nil {
		return judgement{counts: true}
	}
	for i, rule := range a.Spec.PodFailurePolicy.Rules {
		why, matches := matchRule(&rule, pod)
		if !matches {
			continue
		}
		switch rule.Action {
		case batchv1.PodFailurePolicyActionIgnore:
			return judgement{}
		case batchv1.PodFailurePolicyActionFailIndex:
			return judgement{counts: true, failIndex: true}
		case batchv1.PodFailurePolicyActionFailJob:
			return judgement{counts: true, failJob: fmt.Sprintf("%s matching %s rule at index %d", why, rule.Action, i)}
		}
		break
	}
	return judgement{counts: true}
}

// matchRule reports whether a failed pod matches a rule, and by what.
func matchRule(rule *batchv1.PodFailurePolicyRule, pod *corev1.Pod) (why string, matches bool) {
	if codes := rule.OnExitCodes; codes != nil {
		for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
			ended := s.State.Terminated
			if ended == nil || ended.ExitCode == 0 || codes.ContainerName != nil && *codes.ContainerName != s.Name {
				continue
			}
			in := slices.Contains(codes.Values, ended.ExitCode)
			if in && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn ||
				!in && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn {
				return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", s.Name, pod.Namespace, pod.Name,
					ended.ExitCode), true
			}
		}
		return "", false
	}
	for _, condition := range pod.Status.Conditions {
		for _, pattern := range rule.OnPodConditions {
			if condition.Type == pattern.Type && condition.Status == cmp.Or(pattern.Status, corev1.ConditionTrue) {
				return fmt.Sprintf("Pod %s/%s has condition %s", pod.Namespace, pod.Name, condition.Type), true
			}
		}
	}
	return "", false
}

// perIndex reports whether each index has a limit of failures of its own.
func (a *attempt) perIndex() bool { return a.indexed && a.Spec.BackoffLimitPerIndex != nil }

// failuresOf is how often an index has failed, by its pod that failed last. Earlier pods may be deleted: each pod has
// the count of those before it in an annotation.
func (a *attempt) failuresOf(pod *corev1.Pod) int {
	before, err := strconv.Atoi(pod.Annotations[batchv1.JobIndexFailureCountAnnotation])
	if err != nil || before < 0 {
		before = 0
	}
	if a.judge(pod).counts {
		before++
	}
	return before
}

// fail adds a failed pod.
func (a *attempt) fail(pod *corev1.Pod) {
	a.failed = append(a.failed, pod)
	j := a.judge(pod)
	if j.counts {
		a.counted++
	}
	index, ok := indexOf(pod)
	if !ok || !a.perIndex() || index < 0 || index >= int(*a.Spec.Completions) {
		return
	}
	if last := a.lastFailed[index]; last == nil || endedAt(last).Before(endedAt(pod)) {
		a.lastFailed[index] = pod
	}
	if j.failIndex || j.counts && a.failuresOf(pod) > int(*a.Spec.BackoffLimitPerIndex) {
		a.failedIndexes[index] = true
	}
}

// failedByRule returns the condition of a Job that fails by a rule of its podFailurePolicy, nil if it does not.
func (a *attempt) failedByRule() *batchv1.JobCondition {
	for _, pod := range a.failed {
		if why := a.judge(pod).failJob; why != "" {
			return &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonPodFailurePolicy, Message: why}
		}
	}
	return nil
}

// failedByIndexes returns the condition of a Job of which too many indexes failed, or all have ended and some failed;
// nil if it goes on.
func (a *attempt) failedByIndexes() *batchv1.JobCondition {
	switch n := len(a.failedIndexes); {
	case n == 0:
		return nil
	case a.Spec.MaxFailedIndexes != nil && n > int(*a.Spec.MaxFailedIndexes):
		return &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonMaxFailedIndexesExceeded,
			Message: "Job has exceeded the specified maximal number of failed indexes"}
	case n+len(a.completed) >= int(*a.Spec.Completions):
		return &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonFailedIndexes,
			Message: "Job has failed indexes"}
	}
	return nil
}

// succeededByPolicy returns the condition of a Job whose successPolicy is met, nil if it is not.
func (a *attempt) succeededByPolicy() *batchv1.JobCondition {
	if a.Spec.SuccessPolicy == nil || !a.indexed {
		return nil
	}
	for i, rule := range a.Spec.SuccessPolicy.Rules {
		wanted := a.completed
		if rule.SucceededIndexes != nil {
			wanted = map[int]bool{}
			addRanges(wanted, *rule.SucceededIndexes, int(*a.Spec.Completions))
		}
		succeeded := 0
		for index := range wanted {
			if a.completed[index] {
				succeeded++
			}
		}
		if succeeded > 0 && (rule.SucceededIndexes != nil && succeeded == len(wanted) ||
			rule.SucceededCount != nil && succeeded >= int(*rule.SucceededCount)) {
			return &batchv1.JobCondition{Type: batchv1.JobComplete, Reason: batchv1.JobReasonSuccessPolicy,
				Message: fmt.Sprintf("Matched rules at index %d", i)}
		}
	}
	return nil
}

// waitsForEnd reports whether a pod is only replaced once it has ended.
func (a *attempt) waitsForEnd() bool {
	policy := a.Spec.PodReplacementPolicy
	return a.Spec.PodFailurePolicy != nil || policy != nil && *policy == batchv1.Failed
}
