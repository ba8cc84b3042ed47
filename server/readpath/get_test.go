package readpath

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
)

const asObject = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// The response to a GET equals the API server's.
func TestGet(t *testing.T) {
	for _, k := range []kind{pods, nodes, statefulSets, widgets} {
		t.Run(k.resource.Resource, func(t *testing.T) {
			r := newRig(t, k, options{})
			namespace := ""
			if k.namespaced {
				namespace = "default"
			}
			written := r.create(namespace, "o1", withLabel("tier", "a"), withNote("<&> \u2028 é"))
			for _, f := range allEncodings {
				if k.dynamic && f == objectProtobuf {
					continue // custom resources have none
				}
				for _, query := range []string{"", "?resourceVersion=0", "?resourceVersion=" + written.GetResourceVersion()} {
					answer, body := r.get(r.path(namespace)+"/o1"+query, accept(accepted(f, asObject)))
					what := fmt.Sprint(k.resource.Resource, query, " in encoding ", f)
					if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != mediaType(f) ||
						answer.ContentLength != int64(len(body)) {
						t.Errorf("%s: %s, %v", what, answer.Status, answer.Header)
					}
					expectBytes(t, what, body, r.expectedObject(namespace, "o1", f))
				}
			}
			if delegated := r.delegated.Load(); delegated > 0 {
				t.Errorf("%d requests were delegated", delegated)
			}
		})
	}
}

// The response to a GET of an object that was deleted equals the API server's.
func TestGetMissing(t *testing.T) {
	r := newRig(t, pods, options{})
	written := r.create("default", "o1")
	r.delete("default", "o1")
	missing := apierrors.NewNotFound(pods.resource.GroupResource(), "o1")
	for _, f := range []encoding{objectJSON, objectProtobuf} {
		for _, query := range []string{"", "?resourceVersion=" + written.GetResourceVersion()} {
			answer, body := r.get(r.path("default")+"/o1"+query, accept(accepted(f, asObject)))
			what := fmt.Sprint(query, " in encoding ", f)
			if answer.StatusCode != http.StatusNotFound || answer.Header.Get("Content-Type") != mediaType(f) {
				t.Errorf("%s: %s, %v", what, answer.Status, answer.Header)
			}
			expectBytes(t, what, body, encoded(t, &missing.ErrStatus, corev1.SchemeGroupVersion, f))
		}
	}
	if delegated := r.delegated.Load(); delegated > 0 {
		t.Errorf("%d requests were delegated", delegated)
	}
}

func (r *rig) expectedObject(namespace, name string, f encoding) []byte {
	t := r.t.(*testing.T)
	t.Helper()
	o := r.kind.newObject()
	must(0, r.storage.Get(t.Context(), r.key(namespace, name), apistorage.GetOptions{}, o))(t)
	if isMetadata(f) {
		return encoded(t, partial(t, o), metav1.SchemeGroupVersion, f)
	}
	if r.kind.dynamic {
		return must(runtime.Encode(r.kind.codec, o))(t)
	}
	return encoded(t, o, r.kind.gvk.GroupVersion(), f)
}

// A GET returns an object with all writes that were committed before the request.
func TestGetIsConsistent(t *testing.T) {
	r := newRig(t, pods, options{})
	r.create("default", "o1")
	for i := range 50 {
		written := r.update("default", "o1", withLabel("round", fmt.Sprint(i)))
		_, body := r.get(r.path("default")+"/o1", accept("application/json"))
		if want := fmt.Sprintf(`"resourceVersion":%q`, written.GetResourceVersion()); !strings.Contains(string(body), want) {
			t.Fatalf("want %s: %s", want, body)
		}
	}
}

// A large object is made for a response when that is admitted: requests that wait, or are refused, hold no bytes.
func TestLargeObjectsAreMadeOnceAdmitted(t *testing.T) {
	budget := NewBudget(1 << 30)
	budget.lists = newAdmission(64 * gzipFrom)
	r := newRig(t, pods, options{budget: budget})
	var made atomic.Int64
	table := testTable
	table.Now = func() time.Time { made.Add(1); return time.Now() }
	r.reader.resource.Table = &table
	r.waitFor(r.create("default", "o1", withNote(strings.Repeat("x", 2*gzipFrom))))
	get := func(want int, wantMade int64) {
		t.Helper()
		answer, body := r.get(r.path("default")+"/o1", accept(asTable))
		if answer.StatusCode != want || made.Load() != wantMade || want == http.StatusOK && len(body) < 2*gzipFrom {
			t.Errorf("%s, made %d times, %d bytes", answer.Status, made.Load(), len(body))
		}
	}
	release := must(budget.lists.acquire(t.Context(), "other", 64*gzipFrom))(t)
	budget.lists.waiting = queueLength // a full queue
	get(http.StatusTooManyRequests, 0)
	budget.lists.waiting = 0
	release()
	get(http.StatusOK, 1)
	if inUse := budget.lists.inUse(); inUse != 0 {
		t.Errorf("%d bytes are in use", inUse)
	}
}
