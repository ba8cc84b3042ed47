package columns

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/keepwatch/keepwatch/server/readpath"
)

var batchViews = map[schema.GroupResource]view{
	batchv1.Resource("jobs"): show(
		func(job *batchv1.Job) []any {
			template := job.Spec.Template.Spec
			return []any{
				job.Name, jobStatus(job), jobCompletions(job), jobDuration(job), age(job),
				containerNames(template), containerImages(template), selectorOf(job.Spec.Selector),
			}
		},
		nameColumn,
		text("Status", "What the job is doing, or how it ended."),
		text("Completions", described(batchv1.JobStatus{}, "succeeded")),
		text("Duration", "How long the job ran, or has been running."),
		ageColumn,
		containersColumn,
		imagesColumn,
		wide(text("Selector", described(batchv1.JobSpec{}, "selector"))),
	),
	batchv1.Resource("cronjobs"): show(
		func(cronJob *batchv1.CronJob) []any {
			spec, last := cronJob.Spec, any(none)
			if cronJob.Status.LastScheduleTime != nil {
				last = since(cronJob.Status.LastScheduleTime.Time)
			}
			template := spec.JobTemplate.Spec.Template.Spec
			return []any{
				cronJob.Name, spec.Schedule, deref(spec.TimeZone, none), yesNo(spec.Suspend), int64(len(cronJob.Status.Active)),
				last,
				age(cronJob), containerNames(template), containerImages(template), selectorOf(spec.JobTemplate.Spec.Selector),
			}
		},
		nameColumn,
		text("Schedule", described(batchv1.CronJobSpec{}, "schedule")),
		text("Timezone", described(batchv1.CronJobSpec{}, "timeZone")),
		boolean("Suspend", described(batchv1.CronJobSpec{}, "suspend")),
		integer("Active", described(batchv1.CronJobStatus{}, "active")),
		text("Last Schedule", described(batchv1.CronJobStatus{}, "lastScheduleTime")),
		ageColumn,
		containersColumn,
		imagesColumn,
		wide(text("Selector", described(batchv1.JobSpec{}, "selector"))),
	),
}

// jobStatus returns the most important of the job's conditions that are true.
func jobStatus(job *batchv1.Job) string {
	switch {
	case jobIs(job, batchv1.JobComplete):
		return "Complete"
	case jobIs(job, batchv1.JobFailed):
		return "Failed"
	case job.DeletionTimestamp != nil:
		return "Terminating"
	case jobIs(job, batchv1.JobSuspended):
		return "Suspended"
	case jobIs(job, batchv1.JobFailureTarget):
		return "FailureTarget"
	case jobIs(job, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	default:
		return "Running"
	}
}

func jobIs(job *batchv1.Job, conditionType batchv1.JobConditionType) bool {
	for _, condition := range job.Status.Conditions {
		if condition.Type == conditionType {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// jobCompletions returns the number of succeeded and of wanted pods. A job without a wanted number is
// complete after the first success of its parallel pods.
func jobCompletions(job *batchv1.Job) string {
	succeeded, parallelism := job.Status.Succeeded, deref(job.Spec.Parallelism, 0)
	switch {
	case job.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", succeeded, *job.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", succeeded, parallelism)
	default:
		return fmt.Sprintf("%d/1", succeeded)
	}
}

// jobDuration returns the time from the job's start to its end, or until now.
func jobDuration(job *batchv1.Job) any {
	switch {
	case job.Status.StartTime == nil:
		return ""
	case job.Status.CompletionTime == nil:
		return readpath.Since{Time: job.Status.StartTime.Time}
	default:
		return duration.HumanDuration(job.Status.CompletionTime.Sub(job.Status.StartTime.Time))
	}
}
