package simulation

import (
	"slices"
	"testing"

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
		if got := a.missingIndexes(); !slices.Equal(got, want) || a.successes() != int(completions)-len(want) {
			t.Errorf("%q: %v are missing, %d have succeeded, want %v", text, got, a.successes(), want)
		}
	}
}
