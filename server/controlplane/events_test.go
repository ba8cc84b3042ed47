package controlplane_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// Events are deleted after their time, not before, and a write begins it anew. Watches see the deletion, with the last
// state.
func TestEventsExpire(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]controlplane.Options{"memory": {}, "etcd": {TemporaryEtcd: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options.EventTTL = 5 * time.Second
			c := connect(t, start(t, options).RESTConfig())
			events := c.typed.CoreV1().Events("default")
			create := func(name string) *corev1.Event {
				return must(events.Create(t.Context(), &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Name: name},
					InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"},
					Count:          1,
				}, metav1.CreateOptions{}))(t)
			}
			written := map[string]time.Time{"once": time.Now(), "again": time.Now()}
			w := must(events.Watch(t.Context(), metav1.ListOptions{ResourceVersion: create("once").ResourceVersion}))(t)
			defer w.Stop()
			create("again")
			counts := map[string]int32{"once": 1, "again": 1}
			await.State(t, "the other Event is deleted", func() (bool, string) {
				begun := time.Now()
				next, err := events.Patch(t.Context(), "again", types.MergePatchType,
					fmt.Appendf(nil, `{"count": %d}`, counts["again"]+1), metav1.PatchOptions{})
				switch {
				case err == nil:
					written["again"], counts["again"] = begun, next.Count
				case !apierrors.IsNotFound(err): // it expires, too, if the machine stands still for its time
					t.Fatal(err)
				}
				_, err = events.Get(t.Context(), "once", metav1.GetOptions{})
				return apierrors.IsNotFound(err), fmt.Sprint(err)
			})
			for len(counts) > 0 {
				e, ok := <-w.ResultChan()
				if !ok || e.Type == watch.Error {
					t.Fatalf("the watch ends with %v", e.Object)
				}
				if e.Type != watch.Deleted {
					continue
				}
				o := e.Object.(*corev1.Event)
				if age := time.Since(written[o.Name]); age < options.EventTTL || o.Count != counts[o.Name] {
					t.Errorf("the Event %q with count %d is deleted %v after its last write", o.Name, o.Count, age)
				}
				delete(counts, o.Name)
				if _, err := events.Get(t.Context(), o.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("the deleted Event %q: %v", o.Name, err)
				}
			}
		})
	}
}
