package discovery

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answering answers requests without a network.
type answering func(*http.Request) (int, string)

func (a answering) RoundTrip(q *http.Request) (*http.Response, error) {
	code, body := a(q)
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A server that starts has no namespace kube-system yet, and denies to read it. Only if that lasts, its address is the
// cluster's identity: the index on disk of a cluster with another identity is dropped.
func TestClusterOfAStartingServer(t *testing.T) {
	const found = `{"metadata":{"uid":"1234"}}`
	address := &url.URL{Scheme: "https", Host: "server"}
	for name, test := range map[string]struct {
		code  int
		until time.Duration
		want  string
	}{
		"not there yet":   {http.StatusNotFound, unidentifiedFor / 2, "1234"},
		"not there":       {http.StatusNotFound, time.Hour, address.String()},
		"not allowed yet": {http.StatusForbidden, unidentifiedFor / 2, "1234"},
		"not allowed":     {http.StatusForbidden, time.Hour, address.String()},
		"down":            {http.StatusServiceUnavailable, time.Hour, "1234"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				d := Server{&http.Client{Transport: answering(func(*http.Request) (int, string) {
					if time.Since(begun) < test.until {
						return test.code, ""
					}
					return http.StatusOK, found
				})}, address}
				if got := d.AwaitCluster(t.Context()); got != test.want {
					t.Errorf("got %s after %v, want %s", got, time.Since(begun), test.want)
				}
			})
		})
	}
}

// A request that is never answered, on a connection that lives on, is sent again: what is lost is one answer.
func TestLostAnswers(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for path, ask := range map[string]func(Server, context.Context) error{
		"/api/v1/namespaces/kube-system": func(s Server, ctx context.Context) error {
			s.AwaitCluster(ctx)
			return nil
		},
		"/api/v1": func(s Server, ctx context.Context) error { _, err := s.Describe(ctx, pods); return err },
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.": func(s Server, ctx context.Context) error {
			_, err := s.Describe(ctx, pods)
			return err
		},
		"/api/v1/pods":       func(s Server, ctx context.Context) error { _, err := s.Describe(ctx, pods); return err },
		"/api/v1/pods?watch": func(s Server, ctx context.Context) error { _, err := s.Describe(ctx, pods); return err },
	} {
		for _, what := range []string{"nothing", "a part"} {
			synctest.Test(t, func(t *testing.T) {
				lost := &losing{path: path, part: what == "a part"}
				s := Server{&http.Client{Transport: lost}, &url.URL{Scheme: "https", Host: "server"}}
				err := ask(s, t.Context())
				if !lost.once {
					t.Fatalf("%s was not asked for", path)
				}
				if err != nil && IsAnswer(err) {
					t.Errorf("%s, %s answered: %v counts as the server's answer", path, what, err)
				}
				if err := ask(s, t.Context()); err != nil {
					t.Errorf("%s, asked again: %v", path, err)
				}
			})
		}
	}
}

// losing answers all requests but the first one to a path. Of that it answers nothing, or nothing but the header.
type losing struct {
	path       string
	part, once bool
}

func (l *losing) RoundTrip(q *http.Request) (*http.Response, error) {
	path := q.URL.Path
	if q.URL.Query().Has("watch") {
		path += "?watch"
	}
	if path == l.path && !l.once {
		l.once = true
		if !l.part {
			<-q.Context().Done()
			return nil, q.Context().Err()
		}
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(unended{q.Context()})}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(map[string]string{
		"/api/v1/namespaces/kube-system":                  `{"metadata":{"uid":"1234"}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.": `{"spec":{}}`,
		"/api/v1":            `{"resources":[{"name":"pods","kind":"Pod","verbs":["get","list","watch"]}]}`,
		"/api/v1/pods":       `{"kind":"PodList"}`,
		"/api/v1/pods?watch": `{"type":"BOOKMARK","object":{}}`,
	}[path]))}, nil
}

// unended is a body without an end.
type unended struct{ ctx context.Context }

func (u unended) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}
