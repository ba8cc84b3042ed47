package readpath

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"
)

// reasonFor returns the reason for which a request is delegated, "" if it is not.
func (r *rig) reasonFor(method, path string, header http.Header) reason {
	r.t.Helper()
	q := httptest.NewRequestWithContext(r.t.Context(), method, path, nil)
	q.Header = header
	q = r.withInfo(q)
	info, _ := request.RequestInfoFrom(q.Context())
	_, why := r.handler.response(r.lookup(q, info), q, info)
	return why
}

const large = "large" // an object's name

func TestDelegatedRequests(t *testing.T) {
	r := newRig(t, pods, options{})
	written := r.create("default", "o1", withLabel("tier", "a"))
	r.create("default", large, withNote(string(bytes.Repeat([]byte("x"), 2*gzipFrom))))
	r.delete("default", large)
	r.waitFor(r.create("default", large, withNote(string(bytes.Repeat([]byte("x"), 2*gzipFrom)))))
	const all, one = "/api/v1/pods", "/api/v1/namespaces/default/pods/o1"
	plain := accept("application/json")
	for name, test := range map[string]struct {
		path   string
		header http.Header
		want   reason
	}{
		"a list":                       {all, plain, ""},
		"a list, with a slash":         {all + "/", plain, ""},
		"an object, with slashes":      {one + "//", plain, ""},
		"a list in a namespace":        {"/api/v1/namespaces/default/pods", plain, ""},
		"a list with watch=0":          {all + "?watch=0", plain, ""},
		"a watch":                      {all + "?watch=1&resourceVersion=" + written.GetResourceVersion(), plain, ""},
		"a watch with watch=TRUE":      {all + "?watch=TRUE&resourceVersion=0", plain, ""},
		"an object":                    {one, plain, ""},
		"an object with watch=1":       {one + "?watch=1", plain, ""},
		"a missing object":             {"/api/v1/namespaces/default/pods/none", plain, ""},
		"anything":                     {all, accept("*/*"), ""},
		"no preference":                {all, http.Header{}, ""},
		"the first media type of many": {all, accept("application/yaml;q=0.1,application/json"), ""},
		"the only known media type":    {all, accept("image/png,application/json;q=0.1"), ""},
		"metadata, or whole objects": {all,
			accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"), ""},
		"a table":                          {all, accept(asTable + ",application/json"), ""},
		"a table of metadata":              {all + "?includeObject=Metadata", accept(asTable), ""},
		"a table of whole objects":         {all + "?includeObject=Object", accept(asTable), ""},
		"a table of no objects":            {all + "?includeObject=None", accept(asTable), ""},
		"an older table":                   {all, accept("application/json;as=Table;g=meta.k8s.io;v=v1beta1"), ""},
		"a watch as a table":               {all + "?watch=1&resourceVersion=0", accept(asTable), ""},
		"an object as a table":             {one, accept(asTable), ""},
		"an unknown parameter":             {all + "?none=1", plain, ""},
		"a name in a selector":             {all + "?fieldSelector=metadata.name%3Do1", plain, ""},
		"indented JSON":                    {all + "?pretty=true", plain, ""},
		"indented JSON of an object":       {one, accept("application/json;pretty=1"), ""},
		"indented protobuf":                {all + "?pretty=true", accept("application/vnd.kubernetes.protobuf"), ""},
		"a browser":                        {all, accept("application/json", "User-Agent", "Mozilla/5.0"), ""},
		"an impossible name in a selector": {all + "?fieldSelector=metadata.name%3Da%2Fb", plain, ""},

		"another resource":            {"/api/v1/configmaps", plain, reasonResource},
		"another version":             {"/api/v2/pods", plain, reasonResource},
		"another group":               {"/apis/apps/v1/pods", plain, reasonResource},
		"a table of two contents":     {all + "?includeObject=None&includeObject=None", accept(asTable), reasonEncoding},
		"a table of unknown contents": {all + "?includeObject=all", accept(asTable), reasonEncoding},
		"a table in protobuf": {all, accept("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"),
			reasonInvalid},
		"a table in YAML": {all, accept("application/yaml;as=Table;g=meta.k8s.io;v=v1"), reasonEncoding},
		"older metadata": {all, accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"),
			reasonEncoding},
		"one object's metadata": {all, accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
			reasonEncoding},
		"a list for an object": {one, accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
			reasonEncoding},
		"YAML":                       {all, accept("application/yaml"), reasonEncoding},
		"an indented watch":          {all + "?watch=1&pretty=true", plain, reasonEncoding},
		"an indented table":          {all + "?pretty=true", accept(asTable), reasonEncoding},
		"a picture":                  {all, accept("image/png"), reasonInvalid},
		"a bad limit":                {all + "?limit=a", plain, reasonInvalid},
		"a bad label selector":       {all + "?labelSelector=%3D%3D", plain, reasonInvalid},
		"an unknown field":           {all + "?fieldSelector=spec.none%3Da", plain, reasonInvalid},
		"a match without a revision": {all + "?resourceVersionMatch=Exact", plain, reasonInvalid},
		"initial events of a list":   {all + "?sendInitialEvents=true", plain, reasonInvalid},
		"a match of a watch":         {all + "?watch=1&resourceVersionMatch=NotOlderThan", plain, reasonInvalid},
		"an invalid name":            {"/api/v1/namespaces/default/pods/a%25b", plain, reasonInvalid},
		"an export":                  {one + "?export=true", plain, reasonOption},
		"a large object, compressed": {"/api/v1/namespaces/default/pods/large", accept("application/json",
			"Accept-Encoding", "gzip"), reasonOption},
		"a watch by path":              {"/api/v1/watch/pods", plain, reasonPath},
		"a watch by path with watch=1": {"/api/v1/watch/pods?watch=1", plain, reasonPath},
		"empty segments":               {"/api/v1/namespaces/default/pods///o1", plain, reasonPath},
		"a segment after an object":    {one + "//x", plain, reasonPath},
		"a slash in front":             {"/" + all, plain, reasonPath},
		"a group without a name":       {"/apis//v1/pods", plain, reasonPath},
		"a namespace without a name":   {"/api/v1/namespaces//pods", plain, reasonPath},
		"a WebSocket": {all + "?watch=1", accept("application/json", "Connection", "Upgrade", "Upgrade",
			"websocket"), reasonProtocol},
		"an invalid revision": {all + "?resourceVersion=a", plain, reasonState},
		"an invalid token":    {all + "?limit=1&continue=a", plain, reasonState},
	} {
		if got := r.reasonFor(http.MethodGet, test.path, test.header); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	r.stop()
	for _, path := range []string{all, one, all + "?watch=1"} {
		if got := r.reasonFor(http.MethodGet, path, plain); got != reasonState {
			t.Errorf("%s of a storage that has stopped: %q", path, got)
		}
	}
}

func TestDelegatedRequestsForCustomResources(t *testing.T) {
	r := newRig(t, widgets, options{})
	r.create("default", "o1")
	for media, want := range map[string]reason{
		"application/json":                                                                "",
		"application/vnd.kubernetes.protobuf":                                             reasonInvalid,
		"application/vnd.kubernetes.protobuf,application/json":                            "",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": "",
	} {
		if got := r.reasonFor(http.MethodGet, r.path("default")+"/o1", accept(media)); got != want {
			t.Errorf("%s: %q, want %q", media, got, want)
		}
	}
	if got := r.reasonFor(http.MethodGet, r.path("")+"?fieldSelector=spec.size%3D3",
		accept("application/json")); got != reasonInvalid {
		t.Errorf("a selectable field: %q", got)
	}
}

func TestNamespacesOfClusterScopedResources(t *testing.T) {
	r := newRig(t, nodes, options{})
	r.create("", "o1")
	for path, want := range map[string]reason{
		"/api/v1/nodes": "", "/api/v1/nodes/o1": "",
		"/api/v1/namespaces/default/nodes": reasonPath, "/api/v1/namespaces/default/nodes/o1": reasonPath,
		"/api/v1/namespaces//nodes": reasonPath,
	} {
		if got := r.reasonFor(http.MethodGet, path, accept("application/json")); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// A request that is no GET, LIST or WATCH is delegated without further checks.
func TestRequestsThatAreNoReadsAreDelegated(t *testing.T) {
	r := newRig(t, pods, options{})
	r.create("default", "o1")
	for _, q := range [][2]string{
		{http.MethodPost, "/api/v1/namespaces/default/pods"}, {http.MethodHead, "/api/v1/pods"},
		{http.MethodDelete, "/api/v1/namespaces/default/pods"},
		{http.MethodHead, "/api/v1/namespaces/default/pods/o1"},
		{http.MethodGet, "/api/v1/namespaces/default/pods/o1/status"}, {http.MethodGet, "/healthz"},
		{http.MethodGet, "/api/v1"}, {http.MethodGet, "/api/v1/proxy/namespaces/default/pods/o1"},
		{http.MethodOptions, "/api/v1/pods"},
	} {
		before := r.delegated.Load()
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, r.withInfo(httptest.NewRequestWithContext(t.Context(), q[0], q[1], nil)))
		if w.Code != http.StatusTeapot || r.delegated.Load() != before+1 {
			t.Errorf("%v: %d", q, w.Code)
		}
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil))
	if w.Code != http.StatusTeapot {
		t.Errorf("a request without RequestInfo: %d", w.Code)
	}
}

// A read at a future revision waits for it and then fails here: the API server would wait again. A
// watch from a future revision ends with 410, since the source does not have it.
func TestFutureRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pods, options{})
		r.create("default", "o1")
		for _, path := range []string{r.path(""), r.path("default") + "/o1"} {
			answer := r.ask(path+"?resourceVersion=999999999", accept("application/json"))
			if answer.Code != http.StatusGatewayTimeout || !strings.Contains(answer.Body.String(), "ResourceVersionTooLarge") ||
				answer.Header().Get("Retry-After") != "1" {
				t.Errorf("%s: %d, %v, %s", path, answer.Code, answer.Header(), answer.Body)
			}
		}
		for _, query := range []string{"", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&",
			"labelSelector=tier%3Da&"} {
			all := r.serve(t.Context(), "timeoutSeconds=600&"+query+"resourceVersion=999999999", func() {})
			if len(all) != 1 || all[0].Type != watch.Error || all[0].Object.Code != http.StatusGone ||
				all[0].Object.Reason != "Expired" {
				t.Errorf("a watch %q: %+v", query, all)
			}
		}
		if delegated := r.delegated.Load(); delegated > 0 {
			t.Errorf("%d requests were delegated", delegated)
		}
	})
}

// NewReader fails for a Resource with missing fields.
func TestNewReaderChecks(t *testing.T) {
	r := newRig(t, pods, options{})
	valid := *r.reader.resource
	for name, remove := range map[string]func(*Resource){
		"no cache":      func(r *Resource) { r.Cache = nil },
		"no kind":       func(r *Resource) { r.Kind.Kind = "" },
		"no serializer": func(r *Resource) { r.Serializer = nil },
		"no predicate":  func(r *Resource) { r.Predicate = nil },
		"no JSON": func(r *Resource) {
			r.Serializer = runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{MediaType: "text/plain"})
		},
	} {
		invalid := valid
		remove(&invalid)
		if reader, err := NewReader(invalid, NewBudget(1)); err == nil {
			t.Errorf("%s: %v", name, reader)
		}
	}
}

// A policy that wants the objects of responses in the audit log gets them from the API server.
func TestAuditedObjects(t *testing.T) {
	r := newRig(t, pods, options{})
	written := r.create("default", "o1")
	r.waitFor(written)
	for level, want := range map[auditinternal.Level]bool{
		auditinternal.LevelNone: false, auditinternal.LevelMetadata: false, auditinternal.LevelRequest: false,
		auditinternal.LevelRequestResponse: true,
	} {
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods/o1"} {
			q := httptest.NewRequestWithContext(audit.WithAuditContext(t.Context()), http.MethodGet, path, nil)
			q.Header = accept("application/json")
			if err := audit.AuditContextFrom(q.Context()).Init(audit.RequestAuditConfig{Level: level}, nil); err != nil {
				t.Fatal(err)
			}
			before := r.delegated.Load()
			r.handler.ServeHTTP(httptest.NewRecorder(), r.withInfo(q))
			if got := r.delegated.Load() > before; got != want {
				t.Errorf("%s at level %s is delegated: %v", path, level, got)
			}
		}
	}
}

// A read of a deprecated kind is counted, and annotated in the audit log, with the release that does not have the kind
// any more.
func TestReadsOfDeprecatedKinds(t *testing.T) {
	metrics.Register()
	r := newRig(t, pods, options{})
	r.waitFor(r.create("default", "o1"))
	warning, removed := Deprecation(&oldPod{}, pods.gvk)
	r.reader.resource.Warning, r.reader.resource.RemovedRelease = warning, removed
	q := httptest.NewRequestWithContext(audit.WithAuditContext(t.Context()), http.MethodGet, "/api/v1/pods", nil)
	q.Header = accept("application/json")
	audited := audit.AuditContextFrom(q.Context())
	if err := audited.Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
		t.Fatal(err)
	}
	r.handler.ServeHTTP(httptest.NewRecorder(), r.withInfo(q))
	if got, _ := audited.GetEventAnnotation("k8s.io/removed-release"); got != "999.2" || warning == "" {
		t.Errorf("the audit log has the release %q, the warning is %q", got, warning)
	}
	const name = "apiserver_requested_deprecated_apis"
	counted := false
	for _, family := range must(legacyregistry.DefaultGatherer.Gather())(t) {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				counted = counted || family.GetName() == name &&
					label.GetName() == "removed_release" && label.GetValue() == "999.2"
			}
		}
	}
	if !counted {
		t.Error("the metric does not have the release")
	}
}

// oldPod is deprecated.
type oldPod struct{ corev1.Pod }

func (*oldPod) APILifecycleDeprecated() (major, minor int) { return 1, 1 }

func (*oldPod) APILifecycleRemoved() (major, minor int) { return 999, 2 }

// A response that a filter replaces is called nevertheless, with nobody to write to: it releases what it holds. So does
// one whose filter panics.
func TestFilterAnswers(t *testing.T) {
	for _, filter := range []string{"answers", "refuses", "panics"} {
		answers := filter == "answers"
		h := &Handler{}
		h.Filter(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				switch filter {
				case "refuses":
					w.WriteHeader(http.StatusTeapot)
				case "panics":
					panic(filter)
				default:
					next.ServeHTTP(w, q)
				}
			})
		})
		released := 0
		w := httptest.NewRecorder()
		var panicked any
		func() {
			defer func() { panicked = recover() }()
			h.answer(func(w http.ResponseWriter, q *http.Request) {
				released++
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(http.StatusOK)
				if _, err := w.Write([]byte("x")); (err == nil) != answers || (q.Context().Err() == nil) != answers {
					t.Errorf("the filter %s: written with %v, in a context with %v", filter, err, q.Context().Err())
				}
			}, w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		}()
		right := (w.Code == http.StatusTeapot) == (filter == "refuses") && (w.Body.String() == "x") == answers
		if released != 1 || !right || (panicked != nil) != (filter == "panics") {
			t.Errorf("the filter %s: called %d times, %d %q, %v", filter, released, w.Code, w.Body, panicked)
		}
	}
}
