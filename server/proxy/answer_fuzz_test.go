package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// scripted is a server that answers lists of pods with one text, and the first watch with another one. Later watches
// are open and send nothing.
type scripted struct {
	list, watch string
	watched     bool
}

func (s *scripted) RoundTrip(q *http.Request) (*http.Response, error) {
	answer := func(code int, body io.Reader) (*http.Response, error) {
		return &http.Response{
			StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(body), Request: q, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	}
	query := q.URL.Query()
	switch {
	case query.Has("sendInitialEvents"):
		return answer(http.StatusBadRequest, strings.NewReader(""))
	case !query.Has("watch"):
		return answer(http.StatusOK, strings.NewReader(s.list))
	case s.watched:
		return answer(http.StatusOK, untilDone{q.Context()})
	}
	s.watched = true
	return answer(http.StatusOK, strings.NewReader(s.watch))
}

// untilDone is a body that has nothing until its request ends.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

// Whatever a server answers to a list and a watch, the proxy does not panic, and what it answers from memory is a list
// of the API that has the objects of its state.
func FuzzAnswers(f *testing.F) {
	const pod = `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5","labels":{"l":"v"}},"spec":{"nodeName":"one"}}`
	list := func(items string) string {
		return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + items + `]}`
	}
	event := func(kind, object string) string { return `{"type":"` + kind + `","object":` + object + `}` }
	f.Add(list(pod), event("MODIFIED", strings.Replace(pod, `"5"`, `"8"`, 1))+event("DELETED", strings.Replace(pod, `"5"`,
		`"9"`, 1)))
	f.Add(list(pod+","+pod), event("BOOKMARK", `{"metadata":{"resourceVersion":"12"}}`))
	f.Add(list(""), event("ADDED", pod)+event("ADDED", strings.Replace(pod, `"5"`, `"4"`, 1)))
	f.Add(list(strings.Replace(pod, `"5"`, `"99"`, 1)), event("ERROR", `{"kind":"Status","code":410}`))
	f.Add(list(strings.Replace(pod, `{"l":"v"}`, `7`, 1)), "garbage")
	f.Add(list(strings.Replace(pod, `"name":"a"`, `"name":"a","name":"b\u0000"`, 1)), event("MODIFIED", "null"))
	f.Add(list(strings.Replace(pod, `"namespace":"n"`, `"namespace":"../n"`, 1)),
		event("DELETED", strings.Replace(pod, `"5"`, `"newest"`, 1)))
	f.Add("", "")
	about := &discovery.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), ListKind: "PodList",
		Layout: verbatim.Layout{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespaced: true},
	}
	f.Fuzz(func(t *testing.T, list, watch string) {
		synctest.Test(t, func(t *testing.T) {
			server := &rest.Config{Host: "http://server", Transport: &scripted{list: list, watch: watch}}
			registry := metrics.NewKubeRegistry()
			caches, err := newCaches(server, cachesOptions{budget: readpath.NewBudget(1 << 20),
				metrics: watchcache.NewMetrics(registry)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			follower, err := caches.newFollower(about, verbatim.Representation{Encoding: verbatim.JSON{}}, func(error) {
				cancel()
			}, func() {})
			if err != nil {
				t.Fatal(err)
			}
			cache := follower.reader.Cache()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = cache.Run(ctx)
			}()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if cache.ReadinessCheck() == nil {
				wantWhole(t, follower)
			}
			cancel()
			<-ended
		})
	})
}

// wantWhole lists the objects of a follower as a client does.
func wantWhole(t *testing.T, f *follower) {
	t.Helper()
	lookup := func(*http.Request, *request.RequestInfo) *readpath.Reader { return f.reader }
	forwarded := false
	handler := readpath.NewHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { forwarded = true }), lookup,
		readpath.NewBudget(1<<20), 0)
	for _, query := range []string{"", "&labelSelector=l%3Dv", "&fieldSelector=spec.nodeName%3Done"} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?resourceVersion=0"+query, nil)
		q.Header.Set("Accept", "application/json")
		ctx := request.WithRequestInfo(request.WithUser(q.Context(), &user.DefaultInfo{Name: "ada"}), &request.RequestInfo{
			IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods", Path: "/api/v1/pods", APIPrefix: "api",
		})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, q.WithContext(ctx))
		if forwarded || w.Code != http.StatusOK {
			return // an object that cannot be read: the client gets the error
		}
		var list struct {
			metav1.TypeMeta
			Metadata metav1.ListMeta
			Items    []struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatalf("a list that is none: %v: %q", err, w.Body)
		}
		if query == "" && len(list.Items) != f.reader.Cache().Snapshot().Len() ||
			list.Metadata.ResourceVersion != fmt.Sprint(f.reader.Cache().Revision()) {
			t.Fatalf("%d objects at %s, where the state has %d at %d", len(list.Items), list.Metadata.ResourceVersion,
				f.reader.Cache().Snapshot().Len(), f.reader.Cache().Revision())
		}
		for _, item := range list.Items {
			if item.Metadata.Name == "" || item.Metadata.ResourceVersion == "" {
				t.Fatalf("an object without name or revision: %q", w.Body)
			}
		}
	}
}
