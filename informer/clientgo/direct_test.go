package clientgo_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// requests records the requests to a server: path, selectors and Accept.
type requests struct {
	mu  sync.Mutex
	all []string
}

func (r *requests) record(_ http.ResponseWriter, q *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := "client-go"
	if strings.HasPrefix(q.UserAgent(), "keepwatch/") {
		by = "keepwatch"
	}
	r.all = append(r.all, fmt.Sprintf("%s %s?%s accepting %s", by, q.URL.Path, q.URL.Query().Get("labelSelector"),
		q.Header.Get("Accept")))
	return false
}

func (r *requests) want(t *testing.T, prefix string, parts ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		t.Error("no request was sent")
	}
	for _, line := range r.all {
		if !strings.HasPrefix(line, prefix) {
			t.Errorf("request %q, want %q", line, prefix)
		}
		for _, part := range parts {
			if !strings.Contains(line, part) {
				t.Errorf("request %q, without %q", line, part)
			}
		}
	}
}

// syncedPods runs an informer of a group and waits until its handler has received the pods.
func syncedPods(t *testing.T, g *clientgo.Group, lw cache.ListerWatcher, example runtime.Object,
	want ...string) cache.SharedIndexInformer {
	t.Helper()
	inf := g.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})
	var events recorder
	handle, err := inf.AddEventHandler(&events)
	if err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, handle)
	events.want(t, want...)
	return inf
}

// The informer reads the resource of a ListerWatcher of the configuration without it.
func TestDirect(t *testing.T) {
	podsResource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	ways := map[string]struct {
		example runtime.Object
		lw      func(*rest.Config) cache.ListerWatcher
		accept  string
	}{
		"typed": {&corev1.Pod{}, func(cfg *rest.Config) cache.ListerWatcher {
			return cache.NewFilteredListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "pods", "ns",
				func(o *metav1.ListOptions) { o.LabelSelector = "mark!=none" })
		}, "accepting application/vnd.kubernetes.protobuf,application/json"},
		"unstructured": {&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}},
			func(cfg *rest.Config) cache.ListerWatcher {
				objects := dynamic.NewForConfigOrDie(cfg).Resource(podsResource).Namespace("ns")
				return listWatch(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					o.LabelSelector = "mark!=none"
					return objects.List(ctx, o)
				})
			}, "accepting application/json"},
		"metadata": {&metav1.PartialObjectMetadata{TypeMeta: kind}, func(cfg *rest.Config) cache.ListerWatcher {
			objects := metadata.NewForConfigOrDie(cfg).Resource(podsResource).Namespace("ns")
			return listWatch(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = "mark!=none"
				return objects.List(ctx, o)
			})
		}, "as=PartialObjectMetadata"},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			s := podtest.NewServer(t, podtest.Pod("a", podtest.Mark("1")), podtest.Pod("b", podtest.Mark("2")))
			var received requests
			s.Intercept(received.record)
			cfg, direct := clientgo.Direct(s.Config())
			g := clientgo.NewGroup(direct, clientgo.DropManagedFields())
			inf := syncedPods(t, g, way.lw(cfg), way.example, "add! a@101[1]", "add! b@102[2]")
			received.want(t, "keepwatch /api/v1/namespaces/ns/pods?mark!=none", way.accept)
			object, _, _ := inf.GetStore().GetByKey("ns/a")
			if got := object.(runtime.Object).GetObjectKind().GroupVersionKind(); name != "typed" && got.Kind != "Pod" {
				t.Errorf("an object is a %v", got)
			}
			if inf.LastSyncResourceVersion() != "102" {
				t.Errorf("synced up to %q", inf.LastSyncResourceVersion())
			}
		})
	}
}

func listWatch(list cache.ListWithContextFunc) cache.ListerWatcher {
	return &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: func(context.Context,
		metav1.ListOptions) (watch.Interface, error) {
		panic("the ListerWatcher is used for a watch")
	}}
}

// A ListerWatcher whose request is unknown is used as it is.
func TestDirectFallsBack(t *testing.T) {
	for name, change := range map[string]func(cfg *rest.Config, lw *cache.ListWatch){
		"another configuration": func(cfg *rest.Config, lw *cache.ListWatch) {
			*lw = *podsListWatch(rest.AnonymousClientConfig(cfg))
		},
		"no context":      func(_ *rest.Config, lw *cache.ListWatch) { lw.ListWithContextFunc = nil },
		"another request": func(_ *rest.Config, lw *cache.ListWatch) { tweak(lw, "timeoutSeconds") },
	} {
		t.Run(name, func(t *testing.T) {
			s := podtest.NewServer(t, podtest.Pod("a", podtest.Mark("1")))
			var received requests
			s.Intercept(received.record)
			cfg, direct := clientgo.Direct(s.Config())
			g := clientgo.NewGroup(direct)
			lw := podsListWatch(cfg)
			change(cfg, lw)
			syncedPods(t, g, lw, &corev1.Pod{}, "add! a@101[1]")
			received.want(t, "client-go /api/v1/pods")
		})
	}
}

// Direct does not change the caller's configuration: other clients of it send their requests,
// and a ListerWatcher of it is used as it is.
func TestDirectDoesNotChangeTheConfiguration(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a", podtest.Mark("1")))
	cfg := s.UnchangedConfig(t)
	forClients, direct := clientgo.Direct(cfg)
	g := clientgo.NewGroup(direct)
	syncedPods(t, g, podsListWatch(forClients), &corev1.Pod{}, "add! a@101[1]")
	var received requests
	s.Intercept(received.record)
	if list, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("").List(t.Context(),
		metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("another client lists %v, %v", list, err)
	}
	syncedPods(t, g, podsListWatch(cfg), &corev1.Pod{}, "add! a@101[1]")
	received.want(t, "client-go /api/v1/pods")
}

func podsListWatch(cfg *rest.Config) *cache.ListWatch {
	return cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "pods", "",
		fields.Everything())
}

// tweak adds a parameter to the request that is not a selector.
func tweak(lw *cache.ListWatch, _ string) {
	list := lw.ListWithContextFunc
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.TimeoutSeconds = new(int64)
		*o.TimeoutSeconds = 30
		return list(ctx, o)
	}
}

// Watch error handlers find the server's Status in an error, with Direct as without it. So do callers of an informer's
// and a group's status.
func TestErrorsHaveTheStatus(t *testing.T) {
	for _, status := range []struct {
		code   int
		reason metav1.StatusReason
		is     func(error) bool
	}{
		{401, metav1.StatusReasonUnauthorized, apierrors.IsUnauthorized},
		{403, metav1.StatusReasonForbidden, apierrors.IsForbidden},
		{410, metav1.StatusReasonExpired, apierrors.IsResourceExpired},
	} {
		answer := podtest.Status(status.code, status.reason, "no")
		for place, interfere := range map[string]func(w http.ResponseWriter, r *http.Request, watches bool) bool{
			"list": func(w http.ResponseWriter, r *http.Request, watches bool) bool {
				answer(w, r)
				return true
			},
			"watch": func(w http.ResponseWriter, r *http.Request, watches bool) bool {
				if watches {
					answer(w, r)
				}
				return watches
			},
			"event": func(w http.ResponseWriter, r *http.Request, watches bool) bool {
				if watches {
					text := httptest.NewRecorder()
					answer(text, r)
					fmt.Fprintf(w, `{"type":"ERROR","object":%s}`, text.Body)
				}
				return watches
			},
		} {
			for _, direct := range []bool{false, true} {
				s := podtest.NewServer(t, podtest.Pod("a"))
				s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Has("sendInitialEvents") {
						podtest.Status(400, metav1.StatusReasonBadRequest, "no streaming lists")(w, r)
						return true
					}
					return interfere(w, r, r.URL.Query().Has("watch"))
				})
				cfg, g := s.Config(), clientgo.NewGroup()
				if direct {
					forClients, option := clientgo.Direct(cfg)
					cfg, g = forClients, clientgo.NewGroup(option)
				}
				inf := g.NewSharedIndexInformer(podsThrough(cfg), &corev1.Pod{}, 0, nil)
				failed := make(chan error, 1)
				err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
					if !apierrors.IsBadRequest(err) {
						select {
						case failed <- err:
						default:
						}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				stop := podtest.Run(t, inf)
				if err := <-failed; !status.is(err) {
					t.Errorf("%d at a %s, direct %v: %v", status.code, place, direct, err)
				}
				podtest.Eventually(t, func() bool {
					var grouped error
					for _, s := range g.Status() {
						grouped = s.LastFailure
					}
					return status.is(inf.(*clientgo.Shared).Status().LastFailure) && status.is(grouped)
				}, func() string { return fmt.Sprintf("%d at a %s, direct %v, in the status", status.code, place, direct) })
				stop()
			}
		}
	}
}
