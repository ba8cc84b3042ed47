package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

func texts(objects []keepwatch.Object) []string {
	var out []string
	for _, o := range objects {
		out = append(out, string(o.(*Object).JSON()))
	}
	return out
}

func TestListPages(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			send(w, podList(7, `,"continue":"next","remainingItemCount":1`, pod("a", 3), pod("b", 7)))
			return
		}
		send(w, podList(7, "", pod("c", 5)))
	}
	overEach(t, answer, Options{}, func(t *testing.T, s *Source) {
		first, err := s.List(t.Context(), keepwatch.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if first.Revision != 7 || first.Continue != "next" || first.Remaining != 1 || len(first.Objects) != 2 {
			t.Errorf("first page: %+v", first)
		}
		o := first.Objects[1].(*Object)
		if o.Key() != (keepwatch.Key{Namespace: "ns", Name: "b"}) || o.UID() != "uid-b" || o.Revision() != 7 {
			t.Errorf("object is %v %v %v", o.Key(), o.UID(), o.Revision())
		}
		if want := `{"apiVersion":"v1","kind":"Pod",` + pod("b", 7)[1:]; string(o.JSON()) != want {
			t.Errorf("got %s\nwant %s", o.JSON(), want)
		}
		if o.Cells() != nil || o.Columns() != nil {
			t.Error("a whole object has cells")
		}
		last, err := s.List(t.Context(), keepwatch.ListRequest{Continue: first.Continue, NotOlderThan: 9})
		if err != nil {
			t.Fatal(err)
		}
		if last.Revision != 7 || last.Continue != "" || last.Remaining != 0 || len(last.Objects) != 1 {
			t.Errorf("last page: %+v", last)
		}
	})
}

// Lists of different shapes have the same only item.
func TestListShapes(t *testing.T) {
	const whole = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"3"},"x":[1]}`
	for name, text := range map[string]string{
		"built-in":    `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","resourceVersion":"3"},"x":[1]}]}`,
		"items first": `{"items":[{"metadata":{"name":"a","resourceVersion":"3"},"x":[1]}],"metadata":{"resourceVersion":"7"},"kind":"PodList","apiVersion":"v1"}`,
		"custom resource": `{"apiVersion":"v1","items":[` + whole +
			`],"kind":"PodList","metadata":{"continue":"","resourceVersion":"7"}}`,
		"only a kind":        `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"kind":"Pod","metadata":{"name":"a","resourceVersion":"3"},"x":[1]}]}`,
		"indented":           "{\n \"kind\": \"PodList\",\n \"apiVersion\": \"v1\", \"metadata\": {\n\"resourceVersion\": \"7\" }, \"items\": [ {\n \"metadata\": {\n \"name\": \"a\",\n \"resourceVersion\": \"3\"\n },\n \"x\": [\n 1\n ]\n } ] }",
		"unknown members":    `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","selfLink":"/x"},"more":{"items":[1]},"items":[{"metadata":{"name":"a","resourceVersion":"3"},"x":[1]}]}`,
		"no continue":        `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":null,"remainingItemCount":null},"items":[{"metadata":{"name":"a","resourceVersion":"3"},"x":[1]}]}`,
		"escaped, same name": `{"\u006bind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"\u0037"},"items":[{"metadata":{"name":"a","resourceVersion":"3"},"x":[1]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, text) }), Options{})
			page, err := s.List(t.Context(), keepwatch.ListRequest{})
			if err != nil {
				t.Fatal(err)
			}
			want := whole
			if name == "only a kind" { // what is missing goes to the front
				want = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"3"},"x":[1]}`
			}
			if got := texts(page.Objects); page.Revision != 7 || len(got) != 1 || got[0] != want {
				t.Errorf("revision %v, objects %s\nwant %s", page.Revision, got, want)
			}
		})
	}
}

func TestListEmpty(t *testing.T) {
	for _, items := range []string{`[]`, `null`} {
		s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
			send(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":`+items+`}`)
		}), Options{})
		page, err := s.List(t.Context(), keepwatch.ListRequest{})
		if err != nil || page.Revision != 7 || len(page.Objects) != 0 {
			t.Errorf("items %s: got %+v, %v", items, page, err)
		}
	}
}

func TestListInvalid(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		kind keepwatch.FailureKind
		want string
	}{
		"no revision": {`{"kind":"PodList","metadata":{},"items":[]}`, keepwatch.Unversioned, `resource version ""`},
		"revision is no text": {`{"kind":"PodList","metadata":{"resourceVersion":7},"items":[]}`, keepwatch.Unversioned,
			"the list's"},
		"revision is no digit": {`{"metadata":{"resourceVersion":"x7"},"items":[]}`, keepwatch.Unversioned, `"x7"`},
		"revision zero":        {`{"metadata":{"resourceVersion":"0"},"items":[]}`, keepwatch.Unversioned, `"0"`},
		"no metadata":          {`{"items":[]}`, keepwatch.Unversioned, "the list's"},
		"stale":                {podList(4, ""), keepwatch.StaleReplica, "revision 4, requested was 5"},
		"truncated":            {podList(7, "", pod("a", 3))[:90], keepwatch.Undecodable, "list pods: unreadable"},
		"garbage":              {`<html>welcome</html>`, keepwatch.Undecodable, "'<'"},
		"nothing":              {``, keepwatch.Undecodable, "EOF"},
		"no object":            {`["a"]`, keepwatch.Undecodable, "not a JSON object"},
		"not UTF-8":            {podList(7, "", "{\"metadata\":{\"name\":\"\xff\"}}"), keepwatch.Undecodable, "UTF-8"},
		"data after the list":  {podList(7, "") + "{}", keepwatch.Undecodable, "follows"},
		"garbage behind":       {podList(7, "") + "!", keepwatch.Undecodable, "'!'"},
		"deep":                 {podList(7, "", strings.Repeat("[", 20000)), keepwatch.Undecodable, "depth"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, test.text) }),
				Options{})
			page, err := s.List(t.Context(), keepwatch.ListRequest{NotOlderThan: 5})
			wantFailure(t, err, test.kind, "list pods: ", test.want)
			if page.Revision != 0 || page.Objects != nil {
				t.Errorf("a failed page is %+v", page)
			}
		})
	}
}

// TestListUnversioned checks when a list shows that a server has no revisions.
func TestListUnversioned(t *testing.T) {
	const nameless = `{"metadata":{"resourceVersion":"3"}}`
	without := `{"metadata":{"name":"x","namespace":"n"}}`
	none := strings.Replace(podList(7, "", pod("a", 3)), `"resourceVersion":"7"`, `"other":""`, 1)
	for name, test := range map[string]struct {
		lists []string
		want  keepwatch.FailureKind // of the last, 0 for success
	}{
		"a list without one":             {[]string{none}, keepwatch.Unversioned},
		"objects without one":            {[]string{podList(7, "", without, without)}, keepwatch.Unversioned},
		"one of the objects without one": {[]string{podList(7, "", without, pod("a", 3))}, 0},
		"no objects":                     {[]string{podList(7, "")}, 0},
		"an object without a name":       {[]string{podList(7, "", nameless)}, 0},
		"objects without one after an empty list": {[]string{podList(7, ""), podList(8, "", without)},
			keepwatch.Unversioned},
		"a list without one after objects with one": {[]string{podList(7, "", pod("a", 3)), none},
			keepwatch.ProtocolViolation},
		"objects without one after objects with one":   {[]string{podList(7, "", pod("a", 3)), podList(8, "", without)}, 0},
		"a list without one after another without one": {[]string{none, none}, keepwatch.Unversioned},
	} {
		t.Run(name, func(t *testing.T) {
			next := 0
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, test.lists[next]) }),
				Options{})
			var err error
			for next = range test.lists {
				_, err = s.List(t.Context(), keepwatch.ListRequest{})
			}
			if test.want != 0 {
				wantFailure(t, err, test.want, "list pods: ", "resource version")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestObjectsWithoutUIDs checks that objects without a UID have different ones, each the same in
// a list and a watch.
func TestObjectsWithoutUIDs(t *testing.T) {
	without := func(namespace, name string, revision int) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d"}}`, name, namespace, revision)
	}
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			send(w, `{"type":"DELETED","object":`+without("n", "a", 8)+`}`)
			return
		}
		send(w, podList(7, "", without("n", "a", 3), without("n", "b", 3), without("m", "a", 3)))
	}), Options{})
	page, err := s.List(t.Context(), keepwatch.ListRequest{})
	if err != nil || len(page.Objects) != 3 {
		t.Fatalf("%+v, %v", page, err)
	}
	seen := map[keepwatch.UID]bool{"": true}
	for _, o := range page.Objects {
		if seen[o.UID()] || strings.Contains(string(o.UID()), "/") {
			t.Errorf("%v has the UID %q", o.Key(), o.UID())
		}
		seen[o.UID()] = true
	}
	w, err := s.Watch(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	batch, err := w.Next()
	if err != nil || batch.Changes[0].Object.UID() != page.Objects[0].UID() {
		t.Errorf("the deletion of %v has another UID: %+v, %v", page.Objects[0].UID(), batch, err)
	}
}

// A list skips an invalid object, and returns the others.
func TestListSkips(t *testing.T) {
	const bound = 10_000
	long := strings.Repeat(`"`+strings.Repeat("x", bound/3)+`",`, 10) + `{"deep":[1]}`
	for name, test := range map[string]struct {
		item string
		kind keepwatch.FailureKind
		want string
	}{
		"no name": {`{"metadata":{"resourceVersion":"3"}}`, keepwatch.ProtocolViolation,
			"list pods: an object has no name"},
		"null": {`null`, keepwatch.ProtocolViolation, "list pods: an object has no name"},
		"no object": {`[{"metadata":{"name":"x"}}]`, keepwatch.ProtocolViolation,
			"list pods: an object has no name"},
		"no revision": {`{"metadata":{"name":"x","namespace":"n"}}`, keepwatch.ProtocolViolation,
			`list pods: object n/x: resource version "" is not a positive decimal number`},
		"odd revision": {`{"metadata":{"name":"x","namespace":"n","resourceVersion":"seven"}}`,
			keepwatch.ProtocolViolation, `list pods: object n/x: resource version "seven" is not a positive decimal number`},
		"long": {`{"metadata":{"name":"x","namespace":"n","resourceVersion":"3"},"data":[` + long + `]}`,
			keepwatch.Undecodable, "list pods: object n/x is longer than 10000 bytes"},
		"long before its end": {`{"data":[` + long + `],"metadata":{"name":"x","resourceVersion":"3"}}`,
			keepwatch.Undecodable, "list pods: an object is longer than 10000 bytes"},
		"long metadata": {`{"metadata":{"name":"x","annotations":[` + long + `],"resourceVersion":"3"}}`,
			keepwatch.Undecodable, "list pods: object x is longer than 10000 bytes"},
		"long array": {`[` + long + `]`, keepwatch.Undecodable, "list pods: an object is longer than 10000 bytes"},
		"long row of members": {`{"metadata":{"name":"x","namespace":"n"},"data":1` + strings.Repeat(`,"m":"`+
			strings.Repeat("x", bound/3)+`"`, 10) + `}`, keepwatch.Undecodable,
			"list pods: object n/x is longer than 10000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, representation := range []Representation{WholeObjects, TableRows} {
				text := podList(7, `,"continue":"next"`, pod("a", 3), test.item, pod("b", 4), test.item, pod("c", 5))
				if representation == TableRows {
					text = tableText("7", columnsText, rowText("a", 1, 3)+`,{"cells":["x"],"object":`+test.item+`},`+
						rowText("b", 1, 4)+`,{"object":`+test.item+`,"cells":["x"]},`+rowText("c", 1, 5))
				}
				s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, text) }),
					Options{Representation: representation, MaxObject: bound})
				page, err := s.List(t.Context(), keepwatch.ListRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if page.Revision != 7 || len(page.Objects) != 3 || page.Objects[2].Key().Name != "c" || len(page.Skipped) != 2 {
					t.Fatalf("representation %d: %d objects, %v skipped, at %v", representation, len(page.Objects), page.Skipped,
						page.Revision)
				}
				for _, failure := range page.Skipped {
					if failure.Kind != test.kind || failure.Error() != test.want {
						t.Errorf("representation %d: skipped as %v, %q", representation, failure.Kind, failure)
					}
				}
			}
		})
	}
}

// Newest succeeds although the list's object is invalid.
func TestNewestIgnoresInvalidObjects(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) { send(w, podList(7, "", `{}`)) }),
		Options{})
	if revision, err := s.Newest(t.Context()); revision != 7 || err != nil {
		t.Errorf("got %v, %v", revision, err)
	}
}

// An object of exactly the bound is read. A longer text that can't be skipped fails the
// page.
func TestListBound(t *testing.T) {
	const bound = 10_000
	long := func(n int) string {
		return fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":"3"},"data":"%s"}`, strings.Repeat("x", n))
	}
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("continue") {
		case "many": // far longer together than one may be
			send(w, podList(7, "", strings.Repeat(long(bound/2)+",", 20)+long(bound/2)))
		case "long":
			send(w, podList(7, "", long(4*bound)))
		case "metadata":
			send(w, podList(7, `,"continue":"`+strings.Repeat("x", 4*bound)+`"`))
		}
	}), Options{MaxObject: bound})
	if page, err := s.List(t.Context(), keepwatch.ListRequest{Continue: "many"}); err != nil || len(page.Objects) != 21 {
		t.Errorf("got %d objects, %v", len(page.Objects), err)
	}
	for _, part := range []string{"long", "metadata"} {
		_, err := s.List(t.Context(), keepwatch.ListRequest{Continue: part})
		wantFailure(t, err, keepwatch.Undecodable, "list pods: an object is too long: more than 10000 bytes")
	}
}

func TestListRequests(t *testing.T) {
	var seen requestLog
	answer := func(w http.ResponseWriter, r *http.Request) {
		seen.record(r)
		send(w, podList(700, ""))
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "widgets"}
	for name, test := range map[string]struct {
		opts   Options
		req    keepwatch.ListRequest
		path   string
		query  string
		accept string
	}{
		"consistent": {Options{}, keepwatch.ListRequest{}, "/api/v1/pods", "limit=500", "application/json"},
		"not older": {Options{}, keepwatch.ListRequest{NotOlderThan: 42}, "/api/v1/pods",
			"limit=500&resourceVersion=42&resourceVersionMatch=NotOlderThan", "application/json"},
		"next page": {Options{PageSize: 7}, keepwatch.ListRequest{NotOlderThan: 42, Continue: "tok"}, "/api/v1/pods",
			"limit=7&continue=tok", "application/json"},
		"unpaged": {Options{PageSize: -1}, keepwatch.ListRequest{}, "/api/v1/pods", "", "application/json"},
		"whole": {Options{}, keepwatch.ListRequest{NotOlderThan: 42, Whole: true}, "/api/v1/pods",
			"resourceVersion=42&resourceVersionMatch=NotOlderThan", "application/json"},
		"group": {Options{Resource: widgets}, keepwatch.ListRequest{}, "/apis/example.com/v1beta1/widgets",
			"limit=500", "application/json"},
		"namespace": {Options{Resource: widgets, Namespace: "ns"}, keepwatch.ListRequest{},
			"/apis/example.com/v1beta1/namespaces/ns/widgets", "limit=500", "application/json"},
		"odd namespace": {Options{Namespace: "a/../b"}, keepwatch.ListRequest{}, "/api/v1/namespaces/a%2F..%2Fb/pods",
			"limit=500", "application/json"},
		"selectors": {Options{LabelSelector: "a in (b,c)", FieldSelector: "metadata.name=x"}, keepwatch.ListRequest{},
			"/api/v1/pods", "limit=500&labelSelector=a+in+%28b%2Cc%29&fieldSelector=metadata.name%3Dx", "application/json"},
		"table": {Options{Representation: TableRows}, keepwatch.ListRequest{}, "/api/v1/pods",
			"limit=500&includeObject=Metadata", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
		"metadata only": {Options{Representation: MetadataOnly}, keepwatch.ListRequest{}, "/api/v1/pods", "limit=500",
			"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"},
		"behind a proxy": {Options{}, keepwatch.ListRequest{}, "/clusters/one/api/v1/pods", "limit=500", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := serve(t, "HTTP/1.1", answer)
			if name == "behind a proxy" {
				cfg.Host += "/clusters/one/"
			}
			s := newSource(t, cfg, test.opts)
			if _, err := s.List(t.Context(), test.req); err != nil {
				t.Fatal(err)
			}
			r := seen.drain()[0]
			want, _ := url.ParseQuery(test.query)
			if r.URL.EscapedPath() != test.path || fmt.Sprint(r.URL.Query()) != fmt.Sprint(want) {
				t.Errorf("requested %s?%v\nwant %s?%v", r.URL.EscapedPath(), r.URL.Query(), test.path, want)
			}
			if got := r.Header.Get("Accept"); got != test.accept {
				t.Errorf("accepts %q, want %q", got, test.accept)
			}
		})
	}
}

// The source uses the rest.Config's connection settings, and does not change it.
func TestConfig(t *testing.T) {
	var seen requestLog
	cfg := serve(t, "HTTP/2.0", func(w http.ResponseWriter, r *http.Request) {
		seen.record(r)
		send(w, podList(7, ""))
	})
	cfg.BearerToken = "secret"
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"devs"}}
	before := fmt.Sprintf("%#v", *cfg)
	s := newSource(t, cfg, Options{})
	if after := fmt.Sprintf("%#v", *cfg); after != before {
		t.Errorf("New changed the configuration:\n%s\n%s", before, after)
	}
	changed := rest.CopyConfig(cfg)
	changed.UserAgent, changed.DisableCompression = "mine/1", true
	for source, want := range map[*Source][2]string{
		s:                                {userAgent(), "gzip"},
		newSource(t, changed, Options{}): {"mine/1", ""},
	} {
		if _, err := source.List(t.Context(), keepwatch.ListRequest{}); err != nil {
			t.Fatal(err)
		}
		h := seen.drain()[0].Header
		if h.Get("Authorization") != "Bearer secret" || h.Get("Impersonate-User") != "jane" ||
			h.Get("Impersonate-Group") != "devs" {
			t.Errorf("credentials are missing in %v", h)
		}
		if h.Get("User-Agent") != want[0] || h.Get("Accept-Encoding") != want[1] {
			t.Errorf("user agent %q, encoding %q; want %q", h.Get("User-Agent"), h.Get("Accept-Encoding"), want)
		}
	}
}

// The configuration's timeout bounds a page, with a message, and does not bound a watch.
func TestConfigTimeout(t *testing.T) {
	over := make(chan struct{})
	cfg := serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			send(w, podFrame("ADDED", "a", 6))
			<-over
			send(w, podFrame("ADDED", "b", 7))
			return
		}
		send(w, `{"kind":`)
		waitClosed(r)
	})
	cfg.Timeout = 20 * time.Millisecond
	s := newSource(t, cfg, Options{})
	w, err := s.Watch(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = s.List(t.Context(), keepwatch.ListRequest{})
	wantFailure(t, err, keepwatch.Unreachable, "list pods: no complete page within 20ms")
	close(over) // later than the timeout after the watch began
	batches, err := drain(w)
	wantFailure(t, err, keepwatch.Ended)
	wantHistory(t, batches, 5, 7, "ADDED a@6", "ADDED b@7")
}

func TestListCancelled(t *testing.T) {
	overEach(t, func(w http.ResponseWriter, r *http.Request) {
		send(w, `{"kind":"PodList",`)
		waitClosed(r)
	}, Options{}, func(t *testing.T, s *Source) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel) // before or while it reads: both must end
		_, err := s.List(ctx, keepwatch.ListRequest{})
		wantFailure(t, err, keepwatch.Unreachable, "list pods: context canceled")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not wrap the context's error", err)
		}
	})
}

func TestNewRejects(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  rest.Config
		opts Options
		want string
	}{
		"no resource": {rest.Config{}, Options{}, "needs a name and a version"},
		"no version": {rest.Config{}, Options{Resource: schema.GroupVersionResource{Resource: "pods"}},
			"needs a name and a version"},
		"representation": {rest.Config{}, Options{Resource: pods, Representation: 9}, "unknown representation 9"},
		"idle timeout":   {rest.Config{}, Options{Resource: pods, IdleTimeout: -1}, "must not be negative"},
		"object bound":   {rest.Config{}, Options{Resource: pods, MaxObject: 2 << 30}, "between 1 byte and 1 GiB"},
		"host":           {rest.Config{Host: "a b/c"}, Options{Resource: pods}, "server address"},
		"certificates": {rest.Config{Host: "https://h", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}},
			Options{Resource: pods}, "connection settings"},
		"missing files": {rest.Config{Host: "https://h", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}},
			Options{Resource: pods}, "/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(&test.cfg, test.opts)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestNewest(t *testing.T) {
	var seen requestLog
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.record(r)
		send(w, podList(1234, `,"continue":"next","remainingItemCount":9`, pod("a", 3)))
	})
	s := newSource(t, serve(t, "HTTP/2.0", answer), Options{Representation: TableRows, LabelSelector: "a=b",
		Namespace: "ns"})
	revision, err := s.Newest(t.Context())
	if err != nil || revision != 1234 {
		t.Errorf("got %v, %v", revision, err)
	}
	r := seen.drain()[0]
	if got := r.URL.RequestURI(); got != "/api/v1/namespaces/ns/pods?includeObject=Metadata&labelSelector=a%3Db&limit=1" {
		t.Errorf("requested %s", got)
	}
	if got := r.Header.Get("Accept"); !strings.Contains(got, "as=PartialObjectMetadataList") {
		t.Errorf("accepts %q", got)
	}
	s = newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}), Options{})
	_, err = s.Newest(t.Context())
	wantFailure(t, err, keepwatch.Unauthorized, "list pods: 401 Unauthorized")
}
