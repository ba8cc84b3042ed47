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

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A proxy that may not read the server's configuration has the default one, until it may. It has all of it if it may not
// read a part: the server's FlowSchemas name levels that the default ones lack.
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
	var shown, refusals atomic.Int64 // lists of the kind that is not refused, and refusals
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !allowed.Load() && strings.HasSuffix(q.URL.Path, refused) {
			refusals.Add(1)
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
			return
		}
		if q.URL.Query().Has("watch") {
			<-q.Context().Done()
			return
		}
		shown.Add(1)
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
		return slices.Contains(is, "workload-low") && slices.Contains(is, "service-accounts") && refusals.Load() > 2 &&
			(refused == "" || shown.Load() > 2), strings.Join(is, " ")
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
