package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// transport answers requests.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A restoration ends while a request hangs, as one for which a credential plugin waits, and reports what it has
// written.
func TestRestoreEndsBesideAPlugin(t *testing.T) {
	for hangs, want := range map[string]string{
		"GET b":            "",                                  // while the objects are tried
		"PATCH b, not dry": "configmaps/a -n default created\n", // while they are written
	} {
		synctest.Test(t, func(t *testing.T) {
			released := make(chan struct{})
			defer close(released)
			written := map[string]bool{}
			client, err := dynamic.NewForConfig(&rest.Config{Host: "http://server", QPS: -1, Transport: transport(
				func(r *http.Request) (*http.Response, error) {
					name := path.Base(r.URL.Path)
					request := r.Method + " " + name
					if r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == "" {
						written[name], request = true, request+", not dry"
					}
					if request == hangs {
						<-released
						return nil, errors.New("released")
					}
					code, body := http.StatusOK, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
					if r.Method == http.MethodGet && !written[name] {
						code, body = http.StatusNotFound,
							`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
					}
					return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
				})})
			if err != nil {
				t.Fatal(err)
			}
			kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(kind, meta.RESTScopeNamespace)
			r := &restoration{client: client, mapper: mapper}
			for _, name := range []string{"a", "b"} {
				one, err := newRestored(&sink.State{Resource: "configmaps", Key: keepwatch.Key{Namespace: "default", Name: name},
					UID: keepwatch.UID(name), Object: fmt.Appendf(nil,
						`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"k":"v"}}`, name)})
				if err != nil {
					t.Fatal(err)
				}
				r.objects = append(r.objects, one)
			}
			asked := errors.New("asked to end")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(asked) })
			var out, stderr bytes.Buffer
			begin := time.Now()
			err = (&restoreOptions{flags: &flags{output: "text"}}).restore(ctx, r, &out, &stderr)
			if after := time.Since(begin) - time.Minute; !errors.As(err, new(cluster.Left)) || !errors.Is(err, asked) ||
				after != 10*time.Second {
				t.Errorf("%s: %v after %v", hangs, err, after)
			}
			if out.String() != want {
				t.Errorf("%s: the report is %q, want %q", hangs, out.String(), want)
			}
		})
	}
}

// An object whose definition is restored is written once its requests are answered. Discovery shows the type before,
// here also while the definition is gone.
func TestRestoreAwaitsATypeThatIsNotServedYet(t *testing.T) {
	for refused, want := range map[int]string{3: "", 1 << 30: "could not find the requested resource"} {
		synctest.Test(t, func(t *testing.T) {
			defined, requests := false, 0
			client, err := dynamic.NewForConfig(&rest.Config{Host: "http://server", QPS: -1, Transport: transport(
				func(r *http.Request) (*http.Response, error) {
					code, body, kind := http.StatusNotFound, "404 page not found", "text/plain"
					dry, isPatch := r.URL.Query().Get("dryRun") != "", r.Method == http.MethodPatch
					switch isDefinition := strings.Contains(r.URL.Path, "customresourcedefinitions"); {
					case isDefinition && isPatch:
						code, defined = http.StatusOK, defined || !dry
						body = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ws.x"}}`
					case isPatch && dry:
						t.Error("an object was tried whose definition is gone")
					case isPatch:
						if requests++; defined && requests > refused {
							code, body = http.StatusOK, `{"apiVersion":"x/v1","kind":"W","metadata":{"name":"one"}}`
						}
					}
					if code == http.StatusOK {
						kind = "application/json"
					}
					return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {kind}},
						Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
				})})
			if err != nil {
				t.Fatal(err)
			}
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(schema.GroupVersionKind{Group: "x", Version: "v1", Kind: "W"}, meta.RESTScopeRoot)
			mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
				meta.RESTScopeRoot)
			r := &restoration{client: client, mapper: mapper}
			for _, s := range []*sink.State{
				{Resource: "ws.x", UID: "1", Key: keepwatch.Key{Name: "one"},
					Object: []byte(`{"apiVersion":"x/v1","kind":"W","metadata":{"name":"one"}}`)},
				{Resource: "customresourcedefinitions.apiextensions.k8s.io", UID: "2", Key: keepwatch.Key{Name: "ws.x"}, Object: []byte(
					`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ws.x"}}`)},
			} {
				one, err := newRestored(s)
				if err != nil {
					t.Fatal(err)
				}
				r.objects = append(r.objects, one)
			}
			r.sort()
			if err := r.prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, one := range r.objects {
				if one.result != "created" || len(one.problems) > 0 {
					t.Errorf("%s would be %s, with %q", objectName(one.state), one.result, one.problems)
				}
			}
			begin := time.Now()
			err = r.write(t.Context())
			after := time.Since(begin)
			if want == "" && (err != nil || requests != refused+1) ||
				want != "" && (err == nil || !strings.Contains(err.Error(), want) || after != servedWithin) {
				t.Errorf("after %d requests and %v: %v, want %q", requests, after, err, want)
			}
		})
	}
}

// A volume and its claim that are restored together find each other: the claim keeps the volume's name, the volume the
// claim's, and neither has what the binding of then has added.
func TestRestoreOfAVolumeAndItsClaim(t *testing.T) {
	var written []string
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://server", QPS: -1, Transport: transport(
		func(r *http.Request) (*http.Response, error) {
			code, body := http.StatusNotFound, []byte(`{"apiVersion":"v1","kind":"Status","reason":"NotFound","code":404}`)
			if r.Method == http.MethodPatch {
				var err error
				if body, err = io.ReadAll(r.Body); err != nil {
					return nil, err
				}
				if code = http.StatusOK; r.URL.Query().Get("dryRun") == "" {
					written = append(written, strings.TrimSpace(string(body)))
				}
			}
			return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, meta.RESTScopeNamespace)
	const bound = `"pv.kubernetes.io/bind-completed":"yes","pv.kubernetes.io/bound-by-controller":"yes"`
	const claim = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"a":"b"%s},"name":"c",` +
		`"namespace":"shop"},"spec":{"volumeName":"v"}}`
	const volume = `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"annotations":{%s},"name":"v"},"spec":` +
		`{"claimRef":{"name":"c","namespace":"shop"%s},"persistentVolumeReclaimPolicy":"Delete"}}`
	r := &restoration{client: client, mapper: mapper}
	for _, s := range []sink.State{
		{Resource: "persistentvolumeclaims", Key: keepwatch.Key{Namespace: "shop", Name: "c"}, UID: "1",
			Object: fmt.Appendf(nil, claim, ","+bound)},
		{Resource: "persistentvolumes", Key: keepwatch.Key{Name: "v"}, UID: "2",
			Object: fmt.Appendf(nil, volume, bound, `,"resourceVersion":"9","uid":"1"`)},
	} {
		one, err := newRestored(&s)
		if err != nil {
			t.Fatal(err)
		}
		r.objects = append(r.objects, one)
	}
	r.sort()
	var out, stderr bytes.Buffer
	if err := (&restoreOptions{flags: &flags{output: "text"}}).restore(t.Context(), r, &out, &stderr); err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf(volume, "", ""), fmt.Sprintf(claim, "")}
	if !slices.Equal(written, want) {
		t.Errorf("written is\n%s\nwant\n%s", strings.Join(written, "\n"), strings.Join(want, "\n"))
	}
	if want := "keepwatch: persistentvolumes/v: its reclaim policy is Delete: its data may be gone, and goes with its claim\n"; stderr.String() != want {
		t.Errorf("%q, want %q", stderr.String(), want)
	}
}
