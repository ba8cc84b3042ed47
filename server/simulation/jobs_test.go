package simulation

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An index that has completed does not run again, also when its pod is deleted.
func TestCompletedIndexes(t *testing.T) {
	indexed, completions := batchv1.IndexedCompletion, int32(8)
	job := &batchv1.Job{Spec: batchv1.JobSpec{CompletionMode: &indexed, Completions: &completions}}
	succeeded := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: "6"}},
		Status:     corev1.PodStatus{Phase: corev1.PodSucceeded},
	}
	for text, want := range map[string][]int{
		"": {0, 1, 2, 3, 4, 5, 7}, "0": {1, 2, 3, 4, 5, 7}, "0-2,4": {3, 5, 7}, "0-3,5-8": {4}, // of more completions before
		"1,x,3-,-,2-1,9223372036854775807": {0, 2, 3, 4, 5, 7}, // by others
	} {
		job.Status.CompletedIndexes = text
		a := newAttempt(job, []*corev1.Pod{succeeded})
		if got, _ := a.missingIndexes(time.Time{}); !slices.Equal(got, want) || a.successes() != int(completions)-len(want) {
			t.Errorf("%q: %v are missing, %d have succeeded, want %v", text, got, a.successes(), want)
		}
	}
}

// failedPod is a pod of an index that failed with a code, behind so many other failures of the index.
func failedPod(index, before string, code int32) *corev1.Pod {
	evicted := corev1.ConditionFalse
	if code == 137 {
		evicted = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{
			batchv1.JobCompletionIndexAnnotation: index, batchv1.JobIndexFailureCountAnnotation: before}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodFailed,
			Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: evicted}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}},
	}
}

// Rules of a podFailurePolicy, the limits of indexes, and a successPolicy end a Job as Kubernetes says
// (https://kubernetes.io/docs/concepts/workloads/controllers/job/).
func TestPolicies(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	indexed := func(completions int32, change func(*batchv1.JobSpec)) *batchv1.Job {
		mode := batchv1.IndexedCompletion
		job := &batchv1.Job{Spec: batchv1.JobSpec{CompletionMode: &mode, Completions: &completions,
			BackoffLimitPerIndex: number(1), BackoffLimit: number(1 << 30)}}
		change(&job.Spec)
		return job
	}
	done := func(index string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: index}},
			Status:     corev1.PodStatus{Phase: corev1.PodSucceeded},
		}
	}
	policy := func(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
	}
	onCodes := func(action batchv1.PodFailurePolicyAction, operator batchv1.PodFailurePolicyOnExitCodesOperator,
		codes ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: operator, Values: codes}}
	}
	const in, notIn = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	evicted := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget}}} // True is the default
	some := "0,2-3"
	nothing := func(*batchv1.JobSpec) {}
	for name, c := range map[string]struct {
		job    *batchv1.Job
		pods   []*corev1.Pod
		failed int    // that count
		lost   string // the indexes that do not run again
		reason string // with which the Job ends
		says   string
	}{
		"a failure below the limit": {indexed(2, nothing), []*corev1.Pod{failedPod("0", "0", 1)}, 1, "", "", ""},
		"at the limit":              {indexed(2, nothing), []*corev1.Pod{failedPod("0", "1", 1)}, 1, "0", "", ""},
		"all have ended": {indexed(2, nothing), []*corev1.Pod{failedPod("0", "1", 1), done("1")}, 1, "0",
			batchv1.JobReasonFailedIndexes, ""},
		"too many indexes": {indexed(9, func(s *batchv1.JobSpec) { s.MaxFailedIndexes = number(1) }),
			[]*corev1.Pod{failedPod("0", "1", 1), failedPod("4", "1", 1)}, 2, "0,4",
			batchv1.JobReasonMaxFailedIndexesExceeded, ""},
		"an index fails by its code": {indexed(9, policy(onCodes(batchv1.PodFailurePolicyActionFailIndex, in, 42))),
			[]*corev1.Pod{failedPod("3", "0", 42), failedPod("4", "0", 41)}, 2, "3", "", ""},
		"the Job fails by another code": {indexed(9, policy(evicted, onCodes(batchv1.PodFailurePolicyActionFailJob, notIn, 42))),
			[]*corev1.Pod{failedPod("3", "0", 42), failedPod("4", "0", 41)}, 2, "", batchv1.JobReasonPodFailurePolicy,
			"Container c for pod ns/p failed with exit code 41 matching FailJob rule at index 1"},
		"an eviction is ignored": {indexed(2, policy(evicted)), []*corev1.Pod{failedPod("0", "1", 137)}, 0, "", "", ""},
		"the first rule counts": {indexed(2, policy(onCodes(batchv1.PodFailurePolicyActionCount, in, 1),
			onCodes(batchv1.PodFailurePolicyActionFailJob, in, 1))), []*corev1.Pod{failedPod("0", "0", 1)}, 1, "", "", ""},
		"indexes succeed": {indexed(9, func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
				{SucceededCount: number(5)}, {SucceededIndexes: &some, SucceededCount: number(2)}}}
		}), []*corev1.Pod{done("3"), done("2"), done("8")}, 0, "", batchv1.JobReasonSuccessPolicy, "Matched rules at index 1"},
		"indexes and all completions": {indexed(2, func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: number(1)}}}
		}), []*corev1.Pod{done("0"), done("1")}, 0, "", batchv1.JobReasonSuccessPolicy, "Matched rules at index 0"},
		"too few of them": {indexed(9, func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: &some}}}
		}), []*corev1.Pod{done("3"), done("2"), done("8")}, 0, "", "", ""},
	} {
		a := newAttempt(c.job, c.pods)
		reason, says := "", ""
		if verdict, _ := a.verdict(time.Time{}); verdict != nil {
			reason, says = verdict.Reason, verdict.Message
		}
		status := a.status(nil, time.Time{})
		if reason != c.reason || c.says != "" && says != c.says || int(status.Failed) != c.failed ||
			*status.FailedIndexes != c.lost {
			t.Errorf("%s: %q, %q, %d failed, indexes %q", name, reason, says, status.Failed, *status.FailedIndexes)
		}
	}
}

// A Job says how it will end as soon as that is decided, keeps to it, and ends when it has no pod any more, as
// kube-apiserver requires.
func TestJobEndsWithoutPods(t *testing.T) {
	mode, completions := batchv1.IndexedCompletion, int32(2)
	job := &batchv1.Job{Spec: batchv1.JobSpec{CompletionMode: &mode, Completions: &completions, BackoffLimit: new(int32)}}
	now := time.Unix(1000, 0)
	pods := []*corev1.Pod{failedPod("0", "0", 1), {}, {}}
	for _, c := range []struct {
		left        int // of the pods; the last one is terminating
		target, end bool
	}{{3, true, false}, {2, true, false}, {0, true, true}} {
		left := slices.Clone(pods[:c.left])
		if c.left > 1 {
			last := left[c.left-1].DeepCopy()
			last.DeletionTimestamp = &metav1.Time{Time: now}
			left[c.left-1] = last
		}
		a := newAttempt(job, left)
		verdict, _ := a.verdict(now)
		job.Status = *a.status(verdict, now)
		target, end := jobCondition(job, batchv1.JobFailureTarget), jobCondition(job, batchv1.JobFailed)
		if isTrue(target) != c.target || isTrue(end) != c.end ||
			c.end && end.Reason != batchv1.JobReasonBackoffLimitExceeded {
			t.Errorf("with %d pods: %+v", c.left, job.Status)
		}
	}
	if *job.Status.Terminating != 0 || job.Status.CompletionTime != nil {
		t.Errorf("%+v", job.Status)
	}
}
