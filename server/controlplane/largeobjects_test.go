package controlplane_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// An object that is too large for etcd is refused in memory, too, with the same error: kube-apiserver's.
func TestObjectsTooLargeForEtcd(t *testing.T) {
	t.Parallel()
	size := regexp.MustCompile(`\d+ vs`) // of the request, in which names differ
	answers := func(t *testing.T, options controlplane.Options) []metav1.Status {
		templates := connect(t, start(t, options).RESTConfig()).typed.CoreV1().PodTemplates("default")
		template := func(name string, bytes int) *corev1.PodTemplate {
			container := corev1.Container{Name: "a", Image: "a",
				Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", bytes)}}}
			return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: name},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}}
		}
		must(templates.Create(t.Context(), template("fits", 1_500_000), metav1.CreateOptions{}))(t)
		var all []metav1.Status
		for _, err := range []error{
			second(templates.Create(t.Context(), template("above-etcd", 1_600_000), metav1.CreateOptions{})),
			second(templates.Create(t.Context(), template("above-its-client", 2_200_000), metav1.CreateOptions{})),
			second(templates.Update(t.Context(), template("fits", 1_600_000), metav1.UpdateOptions{})),
			second(templates.Patch(t.Context(), "fits", types.MergePatchType, []byte(`{"metadata":{"annotations":{"b":"`+
				strings.Repeat("x", 100_000)+`"}}}`), metav1.PatchOptions{})),
		} {
			var status apierrors.APIStatus
			if !errors.As(err, &status) {
				t.Fatalf("the answer is %v", err)
			}
			answer := status.Status()
			answer.Message = size.ReplaceAllString(answer.Message, "n vs")
			all = append(all, answer)
		}
		return all
	}
	want, got := answers(t, controlplane.Options{TemporaryEtcd: true}), answers(t, controlplane.Options{})
	for i := range want {
		if want[i].Code != http.StatusInternalServerError || want[i].Message != got[i].Message ||
			want[i].Code != got[i].Code || want[i].Reason != got[i].Reason {
			t.Errorf("answer %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}
