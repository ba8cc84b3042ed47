package discovery

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reviewed is a server of pods in JSON and protobuf. Its answers to some requests change with time.
type reviewed struct {
	kinds    map[string]int // the requests that are refused, and the status
	until    time.Time      // when the server refuses no more; zero is never
	verbs    string         // of pods
	warnings int            // of lists
}

// kindOf returns which of the four questions a request is.
func kindOf(q *http.Request) string {
	switch {
	case strings.Contains(q.URL.Path, "apiservices"):
		return "belongs"
	case q.URL.Path == "/api/v1":
		return "discovery"
	case q.URL.Query().Has("watch"):
		return "watch"
	}
	return "list"
}

func (r *reviewed) RoundTrip(q *http.Request) (*http.Response, error) {
	kind := kindOf(q)
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	body := map[string]string{
		"belongs":   `{"spec":{}}`,
		"discovery": `{"resources":[{"name":"pods","kind":"Pod","verbs":[` + r.verbs + `]}]}`,
		"list":      `{"kind":"PodList"}`,
	}[kind]
	code, refused := r.kinds[kind]
	switch {
	case refused && (r.until.IsZero() || time.Now().Before(r.until)):
		answer.StatusCode, body = code, "Too many requests, please try again later."
	case kind == "list":
		for range r.warnings {
			answer.Header.Add("Warning", `299 - "pods are deprecated"`)
		}
	case kind == "watch" && strings.HasPrefix(q.Header.Get("Accept"), runtime.ContentTypeProtobuf):
		answer.Header.Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	}
	answer.Body = io.NopCloser(strings.NewReader(body))
	return answer, nil
}

// A resource that is followed is left to the server when the server has said twice that it cannot be followed, as it is
// when the server says so at first. What a busy, starting or ending server answers changes nothing: memory of the
// resource would be dropped, and its watches would end.
func TestAnswersAboutAFollowedResource(t *testing.T) {
	const verbs = `"get","list","watch"`
	refusing := func(kind string, code int) reviewed {
		return reviewed{kinds: map[string]int{kind: code}, verbs: verbs}
	}
	brief := BelongsEvery / 2 // it is asked once meanwhile
	for name, test := range map[string]struct {
		now    reviewed
		within time.Duration // that it answers so; zero is for ever
		wrong  string        // the error, or empty if the resource is followed as it is
	}{
		"unchanged":              {now: reviewed{verbs: verbs}},
		"too busy for watches":   {now: refusing("watch", http.StatusTooManyRequests)},
		"ends":                   {now: refusing("watch", http.StatusServiceUnavailable)},
		"fails":                  {now: refusing("watch", http.StatusInternalServerError)},
		"busy for a moment":      {now: refusing("watch", http.StatusTooManyRequests), within: brief},
		"too busy for lists":     {now: refusing("list", http.StatusTooManyRequests)},
		"starts":                 {now: refusing("watch", http.StatusForbidden), within: brief},
		"starts, denies lists":   {now: refusing("list", http.StatusForbidden), within: brief},
		"forbidden":              {now: refusing("list", http.StatusForbidden), wrong: "403"},
		"watches are forbidden":  {now: refusing("watch", http.StatusForbidden), wrong: "403"},
		"no version":             {now: refusing("discovery", http.StatusNotFound), wrong: "404"},
		"no watches":             {now: reviewed{verbs: `"get","list"`}, wrong: "no watch"},
		"two warnings":           {now: reviewed{verbs: verbs, warnings: 2}, wrong: "2 warnings"},
		"a warning":              {now: reviewed{verbs: verbs, warnings: 1}, wrong: ErrRedescribed.Error()},
		"no protobuf any longer": {now: refusing("watch", http.StatusUnprocessableEntity), wrong: ErrRedescribed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &reviewed{verbs: verbs}
				s := Server{&http.Client{Transport: server}, &url.URL{Scheme: "https", Host: "server"}}
				r, err := s.Describe(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"})
				if err != nil || !r.Protobuf {
					t.Fatalf("%+v, %v", r, err)
				}
				*server = test.now
				if test.within > 0 {
					server.until = time.Now().Add(test.within)
				}
				relisted := make(chan struct{}, 1)
				relisted <- struct{}{}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err = s.AwaitChange(ctx, r, BelongsEvery, relisted)
				switch {
				case test.wrong == "" && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("it is no longer followed: %v", err)
				case test.wrong != "" && !strings.Contains(err.Error(), test.wrong):
					t.Errorf("%v, want %q", err, test.wrong)
				}
			})
		})
	}
}
