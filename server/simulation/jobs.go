package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attempt is a Job with its pods.
type attempt struct {
	*batchv1.Job
	active, terminating, succeeded, failed []*corev1.Pod
	counted                                int // of the failed pods: towards the limit
	indexed                                bool
	completed, failedIndexes               map[int]bool // the indexes that succeeded, and those that do not run again
	lastFailed                             map[int]*corev1.Pod
}

// work creates the pods of a Job until enough have succeeded or too many have failed.
func (c *Cluster) work(ctx context.Context, namespace, name string) (time.Time, error) {
	job, err := c.jobsOf.Jobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil || job.DeletionTimestamp != nil || job.Spec.ManagedBy != nil &&
		*job.Spec.ManagedBy != batchv1.JobControllerName {
		return time.Time{}, err
	}
	selector, ok := valid(job.Spec.Selector)
	if !ok || !selects(job.Spec.Selector, &job.Spec.Template.ObjectMeta) {
		return time.Time{}, nil
	}
	if finished(job) {
		return c.expireJob(ctx, job)
	}
	o := owner{job, jobKind, selector, func(ctx context.Context) (metav1.Object, error) {
		return c.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	}}
	if _, err := c.podsFor(ctx, o); err != nil {
		return time.Time{}, err
	}
	now := c.clock.Now()
	a := newAttempt(job, c.podsNow(job))
	verdict, due := a.verdict(now)
	next, failed := c.stepJob(ctx, a, o, verdict != nil, now)
	due = earlier(due, next)
	status := newAttempt(job, c.podsNow(job)).status(verdict, now)
	if !equality.Semantic.DeepEqual(*status, job.Status) {
		changed := job.DeepCopy()
		changed.Status = *status
		if changed, err = c.client.BatchV1().Jobs(namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err == nil {
			c.jobs.await(ctx, changed)
		}
	}
	return due, errors.Join(failed, err)
}

func newAttempt(job *batchv1.Job, pods []*corev1.Pod) *attempt {
	a := &attempt{Job: job, completed: map[int]bool{}, failedIndexes: map[int]bool{}, lastFailed: map[int]*corev1.Pod{}}
	a.indexed = job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion &&
		job.Spec.Completions != nil
	if a.indexed { // also by pods that are deleted since
		addRanges(a.completed, job.Status.CompletedIndexes, int(*job.Spec.Completions))
	}
	if a.perIndex() && job.Status.FailedIndexes != nil {
		addRanges(a.failedIndexes, *job.Status.FailedIndexes, int(*job.Spec.Completions))
	}
	for _, pod := range pods {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			a.succeeded = append(a.succeeded, pod)
			if index, ok := indexOf(pod); ok {
				a.completed[index] = true
			}
		case pod.Status.Phase == corev1.PodFailed:
			a.fail(pod)
		case pod.DeletionTimestamp == nil:
			a.active = append(a.active, pod)
		default:
			a.terminating = append(a.terminating, pod)
		}
	}
	return a
}

func indexOf(pod *corev1.Pod) (int, bool) {
	index, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return index, err == nil
}

func jobCondition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if job.Status.Conditions[i].Type == kind {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

func isTrue(condition *batchv1.JobCondition) bool {
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func finished(job *batchv1.Job) bool {
	return isTrue(jobCondition(job, batchv1.JobComplete)) || isTrue(jobCondition(job, batchv1.JobFailed))
}

// expireJob deletes a Job whose time after its end is over.
func (c *Cluster) expireJob(ctx context.Context, job *batchv1.Job) (time.Time, error) {
	if job.Spec.TTLSecondsAfterFinished == nil {
		return time.Time{}, nil
	}
	ended := jobCondition(job, batchv1.JobComplete)
	if !isTrue(ended) {
		ended = jobCondition(job, batchv1.JobFailed)
	}
	if due := ended.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second); due.After(
		c.clock.Now()) {
		return due, nil
	}
	background := metav1.DeletePropagationBackground
	err := c.client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(job.UID)), PropagationPolicy: &background,
	})
	if err == nil {
		c.jobs.awaitDeletion(ctx, job)
	}
	return time.Time{}, err
}

// successes is the number of pods that succeeded, also of those that are deleted since.
func (a *attempt) successes() int {
	if a.indexed {
		return len(a.completed)
	}
	return max(len(a.succeeded), int(a.Status.Succeeded))
}

// failures is the number of pods that failed and count, also of those that are deleted since.
func (a *attempt) failures() int { return max(a.counted, int(a.Status.Failed)) }

func (a *attempt) suspended() bool { return a.Spec.Suspend != nil && *a.Spec.Suspend }

// decided returns the condition with which a Job ends when no pod of it is left, nil if that is not decided.
func (a *attempt) decided() *batchv1.JobCondition {
	for criterion, end := range map[batchv1.JobConditionType]batchv1.JobConditionType{
		batchv1.JobFailureTarget: batchv1.JobFailed, batchv1.JobSuccessCriteriaMet: batchv1.JobComplete,
	} {
		if met := jobCondition(a.Job, criterion); isTrue(met) {
			return &batchv1.JobCondition{Type: end, Reason: met.Reason, Message: met.Message}
		}
	}
	return nil
}

// verdict returns the condition with which a Job ends, or nil and when it would exceed its deadline.
func (a *attempt) verdict(now time.Time) (*batchv1.JobCondition, time.Time) {
	if end := a.decided(); end != nil {
		return end, time.Time{}
	}
	if a.suspended() {
		return nil, time.Time{}
	}
	limit := 6
	if a.Spec.BackoffLimit != nil {
		limit = int(*a.Spec.BackoffLimit)
	}
	byRule, byIndexes, succeeded := a.failedByRule(), a.failedByIndexes(), a.succeededByPolicy()
	switch {
	case byRule != nil:
		return byRule, time.Time{}
	case a.failures() > limit:
		return &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonBackoffLimitExceeded,
			Message: "Job has reached the specified backoff limit"}, time.Time{}
	case byIndexes != nil:
		return byIndexes, time.Time{}
	case succeeded != nil:
		return succeeded, time.Time{}
	case a.Spec.Completions != nil && a.successes() >= int(*a.Spec.Completions),
		a.Spec.Completions == nil && a.successes() > 0 && len(a.active) == 0: // one success is enough, when the others end
		return &batchv1.JobCondition{Type: batchv1.JobComplete, Reason: batchv1.JobReasonCompletionsReached,
			Message: "Reached expected number of succeeded pods"}, time.Time{}
	case a.Spec.ActiveDeadlineSeconds == nil || a.Status.StartTime == nil:
		return nil, time.Time{}
	}
	due := a.Status.StartTime.Add(time.Duration(*a.Spec.ActiveDeadlineSeconds) * time.Second)
	if due.After(now) {
		return nil, due
	}
	return &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonDeadlineExceeded,
		Message: "Job was active longer than specified deadline"}, time.Time{}
}

// The delays of new pods after a pod failed; they double.
const (
	minBackoff = 10 * time.Second
	maxBackoff = 6 * time.Minute
)

// backoff returns until when no new pods are created because pods failed; zero without failures.
func (a *attempt) backoff() time.Time {
	var last time.Time
	for _, pod := range a.failed {
		if at := endedAt(pod); at.After(last) {
			last = at
		}
	}
	return delayed(last, a.failures())
}

// delayed returns when a pod may follow the one that failed last, if so many have failed; zero if none has.
func delayed(last time.Time, failures int) time.Time {
	if last.IsZero() {
		return last
	}
	return last.Add(min(minBackoff<<min(max(failures-1, 0), 10), maxBackoff))
}

// endedAt returns when a failed pod ended.
func endedAt(pod *corev1.Pod) time.Time {
	if condition := conditionOf(&pod.Status, corev1.PodReady); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// stepJob creates the pods that may run now, or deletes those that must not, as many as a burst. It returns when to go
// on.
func (c *Cluster) stepJob(ctx context.Context, a *attempt, o owner, ending bool, now time.Time) (time.Time, error) {
	remove := func(pods []*corev1.Pod) (time.Time, error) {
		left, err := c.deletePods(ctx, pods)
		if left {
			return now, err
		}
		return time.Time{}, err
	}
	if ending || a.suspended() {
		return remove(a.active)
	}
	want := int(number(a.Spec.Parallelism))
	if a.Spec.Completions != nil {
		want = min(want, int(*a.Spec.Completions)-a.successes()-len(a.failedIndexes))
	} else if a.successes() > 0 {
		want = min(want, len(a.active))
	}
	missing := max(want, 0) - len(a.active)
	if missing < 0 {
		deletionOrder(a.active)
		return remove(a.active[:-missing])
	}
	if a.waitsForEnd() {
		missing -= len(a.terminating)
	}
	if missing <= 0 {
		return time.Time{}, nil
	}
	if until := a.backoff(); !a.perIndex() && until.After(now) {
		return until, nil
	}
	var indexes []int
	var next time.Time
	if a.indexed {
		indexes, next = a.missingIndexes(now)
		missing = min(missing, len(indexes))
	}
	for i := range min(missing, burst) {
		pod := newPod(&a.Spec.Template, o)
		if a.indexed {
			a.setIndex(pod, indexes[i])
		}
		if err := c.createPod(ctx, pod); err != nil {
			return time.Time{}, err
		}
	}
	if missing > burst {
		return now, nil
	}
	return next, nil
}

// setIndex makes a new pod that of an index.
func (a *attempt) setIndex(pod *corev1.Pod, number int) {
	index := strconv.Itoa(number)
	pod.GenerateName = a.Name + "-" + index + "-"
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, index)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, index)
	pod.Spec.Hostname = a.Name + "-" + index
	if !a.perIndex() {
		return
	}
	failures := 0
	if last := a.lastFailed[number]; last != nil {
		failures = a.failuresOf(last)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(failures))
}

// missingIndexes returns the indexes that have neither ended nor a pod, and may run now, and when the next one may.
func (a *attempt) missingIndexes(now time.Time) (missing []int, next time.Time) {
	running := map[int]bool{}
	pods := a.active
	if a.waitsForEnd() {
		pods = slices.Concat(a.active, a.terminating)
	}
	for _, pod := range pods {
		if index, ok := indexOf(pod); ok {
			running[index] = true
		}
	}
	for index := range int(*a.Spec.Completions) {
		if a.completed[index] || a.failedIndexes[index] || running[index] {
			continue
		}
		if last := a.lastFailed[index]; last != nil && a.perIndex() {
			if until := delayed(endedAt(last), a.failuresOf(last)); until.After(now) {
				next = earlier(next, until)
				continue
			}
		}
		if missing = append(missing, index); len(missing) > burst {
			break
		}
	}
	return missing, next
}

// status returns the status of the Job.
func (a *attempt) status(verdict *batchv1.JobCondition, now time.Time) *batchv1.JobStatus {
	status := a.Status.DeepCopy()
	at := metav1.NewTime(now)
	ready, terminating := int32(0), int32(len(a.terminating))
	for _, pod := range a.active {
		if isReady(pod) {
			ready++
		}
	}
	status.Active, status.Ready, status.Terminating = int32(len(a.active)), &ready, &terminating
	status.Succeeded, status.Failed = int32(a.successes()), int32(a.failures())
	if a.indexed {
		status.CompletedIndexes = ranges(a.completed)
	}
	if a.perIndex() {
		failed := ranges(a.failedIndexes)
		status.FailedIndexes = &failed
	}
	if status.UncountedTerminatedPods == nil {
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	set := func(c batchv1.JobCondition, value corev1.ConditionStatus) {
		for i := range status.Conditions {
			if status.Conditions[i].Type == c.Type {
				if status.Conditions[i].Status == value {
					return
				}
				status.Conditions = slices.Delete(status.Conditions, i, i+1)
				break
			}
		}
		c.Status, c.LastProbeTime, c.LastTransitionTime = value, at, at
		status.Conditions = append(status.Conditions, c)
	}
	switch suspended := jobCondition(a.Job, batchv1.JobSuspended); {
	case a.suspended():
		set(batchv1.JobCondition{Type: batchv1.JobSuspended, Reason: "JobSuspended", Message: "Job suspended"},
			corev1.ConditionTrue)
		status.StartTime = nil
	case isTrue(suspended):
		set(batchv1.JobCondition{Type: batchv1.JobSuspended, Reason: "JobResumed", Message: "Job resumed"},
			corev1.ConditionFalse)
		status.StartTime = &at
	case status.StartTime == nil:
		status.StartTime = &at
	}
	if verdict == nil {
		return status
	}
	criterion := *verdict
	if criterion.Type = batchv1.JobFailureTarget; verdict.Type == batchv1.JobComplete {
		criterion.Type = batchv1.JobSuccessCriteriaMet
	}
	set(criterion, corev1.ConditionTrue)
	if len(a.active) > 0 || len(a.terminating) > 0 { // kube-apiserver has no Job that has ended and has pods
		return status
	}
	if verdict.Type == batchv1.JobComplete {
		status.CompletionTime = &at
	}
	set(*verdict, corev1.ConditionTrue)
	return status
}

// addRanges adds the numbers of a text that ranges has returned, as far as they are below a limit.
func addRanges(to map[int]bool, text string, limit int) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		end, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 {
			continue
		}
		for n := from; n <= end && n < limit; n++ {
			to[n] = true
		}
	}
}

// ranges returns numbers as "0-2,4".
func ranges(of map[int]bool) string {
	var parts []string
	all := make([]int, 0, len(of))
	for n := range of {
		all = append(all, n)
	}
	slices.Sort(all)
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, strconv.Itoa(all[i]))
		case 1:
			parts = append(parts, strconv.Itoa(all[i]), strconv.Itoa(all[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
