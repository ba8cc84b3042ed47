package readpath

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Conversion to the served version may add annotations. Metadata and rows are those of the object before it, as
// in kube-apiserver.
func TestMetadataIsNotConverted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const added = "added-by-conversion"
		r := newRig(t, pods, options{})
		r.reader.resource.Convert = func(o runtime.Object) (runtime.Object, error) {
			converted := o.(*corev1.Pod).DeepCopy()
			converted.Annotations = map[string]string{added: ""}
			return converted, nil
		}
		r.reader.ownBytes = false // as NewReader decides for a reader that converts
		written := r.create("default", "o1")
		for _, query := range []string{"/o1", "", "?watch=1&timeoutSeconds=1&resourceVersion=0"} {
			as := ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
			if query != "" {
				as = asObject
			}
			for media, want := range map[string]bool{
				"application/json": true, "application/json" + as: false, "application/vnd.kubernetes.protobuf" + as: false,
				asTable: false,
			} {
				answer := r.ask(r.path("default")+query, accept(media))
				if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), string(written.GetUID())) {
					t.Errorf("%s of %q: %d, %q", media, query, answer.Code, answer.Body)
				}
				if strings.Contains(answer.Body.String(), added) != want {
					t.Errorf("%s of %q shows the converted metadata: %t", media, query, !want)
				}
			}
		}
		if delegated := r.delegated.Load(); delegated > 0 {
			t.Errorf("%d requests were delegated", delegated)
		}
	})
}
