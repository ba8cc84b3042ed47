package direct_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/informer/internal/direct"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// unversioned is a server of two ConfigMaps without revisions and UIDs, as some aggregated APIs
// are. Its watches send events.
type unversioned struct{ events chan string }

func (u unversioned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	switch {
	case q.Get("labelSelector") != "color=red":
		w.WriteHeader(http.StatusBadRequest)
	case !q.Has("watch"):
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[%s,%s]}`, configMap("a"),
			configMap("b"))
	default:
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case e := <-u.events:
				_, _ = fmt.Fprintln(w, e)
			case <-r.Context().Done():
				return
			}
		}
	}
}

func configMap(name string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"n"}}`, name)
}

// TestServerWithoutRevisions checks that such a server is followed as client-go's informers follow it.
func TestServerWithoutRevisions(t *testing.T) {
	for _, example := range []runtime.Object{&corev1.ConfigMap{}, &unstructured.Unstructured{},
		&metav1.PartialObjectMetadata{}} {
		t.Run(fmt.Sprintf("%T", example), func(t *testing.T) {
			u := unversioned{make(chan string)}
			server := httptest.NewServer(u)
			t.Cleanup(server.Close)
			source, err := direct.New(&rest.Config{Host: server.URL}, example, direct.Options{
				Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
				Kind:     corev1.SchemeGroupVersion.WithKind("ConfigMap"), Labels: "color=red",
			})
			if err != nil {
				t.Fatal(err)
			}
			f := follow.New("configmaps", source, example, follow.Options{Paged: true, StartupDeadline: -1})
			source.Cached = f.Cached
			ctx, stop := context.WithTimeout(t.Context(), await.Deadline)
			done := make(chan error, 1)
			go func() {
				done <- f.Run(ctx, follow.Hooks{Begin: func(context.Context) {}, End: func(error) {}})
			}()
			t.Cleanup(func() { stop(); <-done })
			changes := make(notifications, 100)
			if _, err := f.Add(changes, follow.HandlerOptions{}); err != nil {
				t.Fatal(err)
			}
			changes.want(t, reflect.TypeOf(example), "+n/a", "+n/b")
			u.events <- `{"type":"ADDED","object":` + configMap("a") + `}` // as each watch begins without a revision
			u.events <- `{"type":"ADDED","object":` + configMap("c") + `}`
			u.events <- `{"type":"DELETED","object":` + configMap("b") + `}`
			changes.want(t, reflect.TypeOf(example), "+n/c", "-n/b")
		})
	}
}

// notifications receives those of a handler.
type notifications chan follow.Notification

func (c notifications) Callback(n follow.Notification) func() error {
	return func() error {
		c <- n
		return nil
	}
}

// want waits for notifications of objects of a type.
func (c notifications) want(t *testing.T, kind reflect.Type, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case n := <-c:
			sign, o := "+", n.New
			if o == nil {
				sign, o = "-", n.Last
			}
			if got := sign + n.Key().String(); got != w || reflect.TypeOf(o.Value()) != kind {
				t.Fatalf("got %s of %T, want %s", got, o.Value(), w)
			}
		case <-time.After(await.Deadline):
			t.Fatalf("no %s", w)
		}
	}
}
