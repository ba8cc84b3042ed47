package fairness

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A proxy that may not read the server's configuration has the default one, until it may. It has all of it if it may
// not read a part: the server's FlowSchemas name levels that the default ones lack.
func TestDefaultConfiguration(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]string{"all": "", "FlowSchemas": "/flowschemas",
		"levels": "/prioritylevelconfigurations"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defaultConfiguration(t, refused)
		})
	}
}

// defaultConfiguration is the test of a server that refuses paths with an end.
func defaultConfiguration(t *testing.T, refused string) {
	var allowed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !allowed.Load() && strings.HasSuffix(q.URL.Path, refused) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
			return
		}
		if q.URL.Query().Has("watch") {
			<-q.Context().Done()
			return
		}
		kind := "FlowSchemaList"
		if strings.HasSuffix(q.URL.Path, "/prioritylevelconfigurations") {
			kind = "PriorityLevelConfigurationList"
		}
		_, _ = w.Write([]byte(`{"kind":"` + kind + `","apiVersion":"flowcontrol.apiserver.k8s.io/v1","metadata":` +
			`{"resourceVersion":"7"},"items":[{"metadata":{"name":"theirs"}}]}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	all := newConfigurationAskedAgain(client, 10*time.Millisecond)
	schemas, levels := all.Flowcontrol().V1().FlowSchemas().Lister(),
		all.Flowcontrol().V1().PriorityLevelConfigurations().Lister()
	ctx, cancel := context.WithCancel(t.Context())
	all.StartWithContext(ctx)
	defer all.Shutdown()
	defer cancel()
	names := func() (names []string) {
		some, _ := schemas.List(labels.Everything())
		for _, s := range some {
			names = append(names, s.Name)
		}
		others, _ := levels.List(labels.Everything())
		for _, l := range others {
			names = append(names, l.Name)
		}
		slices.Sort(names)
		return names
	}
	await.State(t, "the default configuration is used", func() (bool, string) {
		is := names()
		return slices.Contains(is, "workload-low") && slices.Contains(is, "service-accounts"), strings.Join(is, " ")
	})
	if slices.Contains(names(), "theirs") {
		t.Error("a part is the server's")
	}
	some, _ := schemas.List(labels.Everything())
	for _, s := range some {
		if s.UID == "" {
			t.Errorf("%s has no UID for the headers of responses", s.Name)
		}
	}
	allowed.Store(true)
	await.State(t, "the server's configuration is used", func() (bool, string) {
		is := names()
		return slices.Equal(is, []string{"theirs", "theirs"}), strings.Join(is, " ")
	})
}

// While the default objects of one kind are used, and the server then shows both kinds, they are replaced at once.
func TestDefaultsEndTogether(t *testing.T) {
	theirs := func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &flowcontrolv1.FlowSchemaList{}, nil
	}
	refuses := func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}
	shown := &shown{now: make(chan struct{})}
	early := &configured{shown: shown, again: time.Hour, list: refuses, other: theirs, defaults: defaultSchemas()}
	late := &configured{shown: shown, again: time.Hour, list: theirs, other: theirs, defaults: defaultLevels()}
	if _, err := early.List(metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := early.Watch(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := late.List(metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.ResultChan():
	case <-time.After(await.Deadline):
		t.Fatal("the default objects are used on")
	}
	if _, err := early.List(metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the default objects of one kind are used beside the server's of the other: %v", err)
	}
}
