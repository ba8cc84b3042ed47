package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy/internal/tables"
	"github.com/keepwatch/keepwatch/server/testserver"
)

// tableRig is a proxy in front of a test server with widgets, which have a column of each type.
type tableRig struct {
	*testing.T
	proxy       *Proxy
	serve       *httptest.Server
	server      *httptest.Server // between the proxy and the test server
	client      *http.Client     // of both
	prints      atomic.Pointer[strings.Replacer]
	widgets     dynamic.ResourceInterface
	definitions apiextensions.CustomResourceDefinitionInterface
}

var widgetsResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

const widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"

func newTableRig(t *testing.T, drop ...string) *tableRig {
	r := &tableRig{T: t, client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	served := testserver.New(t)
	definitions, err := apiextensions.NewForConfig(served.Config())
	r.must(err)
	client, err := dynamic.NewForConfig(served.Config())
	r.must(err)
	r.definitions = definitions.CustomResourceDefinitions()
	r.widgets = client.Resource(widgetsResource).Namespace("default")
	_, err = r.definitions.Create(t.Context(), widgetDefinition(), metav1.CreateOptions{})
	r.must(err)
	await.NoError(t, "widgets are served", func() error {
		_, err := r.widgets.List(t.Context(), metav1.ListOptions{})
		return err
	})
	r.between(served.Config())
	r.proxy, err = New(Config{Server: &rest.Config{Host: r.server.URL}, OwnToken: "own", SmallCollection: -1,
		DropManagedFields: drop})
	r.must(err)
	r.proxy.tables.VersionEvery, r.proxy.tables.SampleEvery, r.proxy.tables.Retry = 10*time.Millisecond,
		10*time.Millisecond, 10*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.proxy.Run(ctx) }()
	r.serve = httptest.NewServer(r.proxy)
	t.Cleanup(func() {
		cancel()
		r.serve.CloseClientConnections()
		r.serve.Close()
		<-ended
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// widgetDefinition returns the definition of widgets.
func widgetDefinition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
					{Name: "Color", Type: "string", JSONPath: ".spec.color"},
					{Name: "Size", Type: "integer", JSONPath: ".spec.size", Description: "How large it is."},
					{Name: "Weight", Type: "number", JSONPath: ".spec.weight", Priority: 1},
					{Name: "Ready", Type: "boolean", JSONPath: ".spec.ready"},
					{Name: "All", Type: "string", JSONPath: ".spec"},
					{Name: "Due", Type: "date", JSONPath: ".spec.due"},
					{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
				},
			}},
		},
	}
}

func (r *tableRig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// between starts the server that the proxy and the test ask. It prints Tables as the test server does, or in another
// way.
func (r *tableRig) between(served *rest.Config) {
	transport, err := rest.TransportFor(served)
	r.must(err)
	to, err := url.Parse(served.Host)
	r.must(err)
	r.server = httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(to)
			q.Out.Header.Del("Authorization")
			q.Out.Header.Set("Accept-Encoding", "identity")
		},
		ModifyResponse: func(answer *http.Response) error {
			prints := r.prints.Load()
			if prints == nil || !strings.Contains(answer.Request.Header.Get("Accept"), "as=Table") ||
				answer.Request.URL.Query().Has("watch") {
				return nil
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				return err
			}
			text := prints.Replace(string(body))
			answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
			answer.Header.Del("Content-Length")
			return nil
		},
		ErrorLog: nil,
	})
}

// create creates a widget.
func (r *tableRig) create(name, color string) *unstructured.Unstructured {
	r.Helper()
	o, err := r.widgets.Create(r.Context(), newWidget(name, color), metav1.CreateOptions{})
	r.must(err)
	return o
}

// newWidget returns a widget with an age that stays as it is for years.
func newWidget(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name,
			"labels": map[string]any{"color": color}},
		"spec": map[string]any{"color": color, "size": int64(len(name)), "weight": 1.5, "ready": color == "green",
			"due": "1999-01-01T00:00:00Z", "more": []any{"<a>", int64(1)}},
	}}
}

func (r *tableRig) open(server *httptest.Server, path string) *http.Response {
	r.Helper()
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, server.URL+path, nil)
	r.must(err)
	q.Header.Set("Authorization", "Bearer own")
	q.Header.Set("Accept", tables.Media+",application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	answer, err := r.client.Do(q)
	r.must(err)
	return answer
}

func (r *tableRig) get(server *httptest.Server, path string) string {
	r.Helper()
	answer := r.open(server, path)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	r.must(err)
	return fmt.Sprintf("%d %s %s", answer.StatusCode, answer.Header.Get("Content-Type"), body)
}

// saved returns how many reads of a verb memory has answered.
func (r *tableRig) saved(verb string) uint64 { return r.proxy.Status().Saved[verb] }

// fromMemory waits until memory answers a path as the server does, but for the ages.
func (r *tableRig) fromMemory(path, verb string) (body string) {
	r.Helper()
	await.State(r.T, path+" is answered from memory, as the server answers it", func() (bool, string) {
		before := r.saved(verb)
		direct := r.get(r.server, path)
		body = r.get(r.serve, path)
		saved := r.saved(verb) > before
		return saved && withoutAges(body) == withoutAges(direct), fmt.Sprintf("%v\n%s\n%s", saved, body, direct)
	})
	return body
}

// comparisons returns how many comparisons had a result.
func (r *tableRig) comparisons(result string) (n float64) {
	r.Helper()
	families, err := r.proxy.registry.Gather()
	r.must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == "keepwatch_proxy_table_comparisons_total" && label.GetValue() == result {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// Tables of custom resources are answered from memory with the server's bytes, after a comparison: lists and their
// pages, with selectors, and objects.
func TestTablesOfCustomResources(t *testing.T) {
	t.Parallel()
	r := newTableRig(t)
	for i := range 7 {
		r.create(fmt.Sprint("widget-", i), []string{"red", "green"}[i%2])
	}
	first := r.fromMemory("/apis/example.com/v1/widgets?limit=3", "list")
	_, rest, _ := strings.Cut(first, `"continue":"`)
	token, _, ok := strings.Cut(rest, `"`)
	if !ok || !strings.Contains(first, `"cells":["widget-0","red",8,1.5,false,`) {
		t.Fatalf("the first page: %s", first)
	}
	for _, path := range []string{
		widgetsPath, widgetsPath + "?labelSelector=color%3Dred", widgetsPath + "?fieldSelector=metadata.name%3Dwidget-2",
		widgetsPath + "?resourceVersion=0",
		"/apis/example.com/v1/widgets?limit=3&continue=" + url.QueryEscape(token),
		"/apis/example.com/v1/namespaces/other/widgets",
	} {
		r.fromMemory(path, "list")
	}
	r.fromMemory(widgetsPath+"/widget-3", "get")
	for _, include := range []metav1.IncludeObjectPolicy{metav1.IncludeNone, metav1.IncludeObject,
		metav1.IncludeMetadata} {
		r.fromMemory(widgetsPath+"?includeObject="+string(include), "list")
	}
	if r.comparisons("equal") == 0 || r.comparisons("different") > 0 {
		t.Errorf("%v comparisons are equal, %v different", r.comparisons("equal"), r.comparisons("different"))
	}
}

// The cells of clients that receive objects without managedFields are compared, too.
func TestTablesWithoutManagedFields(t *testing.T) {
	t.Parallel()
	r := newTableRig(t, "")
	r.create("a", "red")
	r.fromMemory(widgetsPath+"?includeObject=None", "list")
	await.State(t, "a row without managedFields is answered from memory", func() (bool, string) {
		before := r.saved("list")
		got := r.get(r.serve, widgetsPath)
		return r.saved("list") > before && strings.Contains(got, `"name":"a"`) && !strings.Contains(got, "managedFields"), got
	})
}

// A watch of Tables has the server's events. It ends when the definition changes, and the next Tables have the new
// columns.
func TestWatchOfTables(t *testing.T) {
	t.Parallel()
	r := newTableRig(t)
	begin := r.create("a", "red")
	r.fromMemory(widgetsPath, "list")
	query := "?watch=1&timeoutSeconds=600&resourceVersion=" + begin.GetResourceVersion()
	var lines []*bufio.Reader
	await.True(t, "memory answers the watch", func() bool { // reviews fail on a machine that is busy
		before := r.saved("watch")
		answer := r.open(r.serve, widgetsPath+query)
		t.Cleanup(func() { answer.Body.Close() })
		lines = []*bufio.Reader{bufio.NewReader(answer.Body)}
		return r.saved("watch") > before
	})
	direct := r.open(r.server, widgetsPath+query)
	defer direct.Body.Close()
	lines = append(lines, bufio.NewReader(direct.Body))
	r.create("b", "green")
	_, err := r.widgets.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"color":"blue","due":null}}`),
		metav1.PatchOptions{})
	r.must(err)
	r.must(r.widgets.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	for range 3 {
		got, err := lines[0].ReadString('\n')
		r.must(err)
		want, err := lines[1].ReadString('\n')
		r.must(err)
		if withoutAges(got) != withoutAges(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}

	_, err = r.definitions.Patch(t.Context(), "widgets.example.com", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/versions/0/additionalPrinterColumns/0/jsonPath","value":".spec.size"}]`),
		metav1.PatchOptions{})
	r.must(err)
	if rest, err := io.ReadAll(lines[0]); err != nil || len(rest) > 0 {
		t.Errorf("the watch ends with %v: %s", err, rest)
	}
	if got := r.fromMemory(widgetsPath, "list"); !strings.Contains(got, `"cells":["a","1",1,`) {
		t.Errorf("with another column: %s", got)
	}
}

// age is the last cell of a row: that of a young object changes from second to second.
var age = regexp.MustCompile(`,"[0-9a-z]+"\],"object":`)

// withoutAges returns a Table, or an event of one, with the same age in each row.
func withoutAges(table string) string { return age.ReplaceAllString(table, `,"age"],"object":`) }

// A server that prints other cells than memory is noticed: before memory answers, and by samples after it has. Its own
// Tables are forwarded then, until they are equal again.
func TestTablesOfAnotherPrinter(t *testing.T) {
	t.Parallel()
	for name, prints := range map[string]*strings.Replacer{
		"a cell":        strings.NewReplacer(`"red"`, `"RED"`),
		"a column":      strings.NewReplacer(`"How large it is."`, `"How large."`),
		"its type":      strings.NewReplacer(`"a",`, `"a",null,`),
		"metadata":      strings.NewReplacer(`"labels":{`, `"labels":{"x":"y",`),
		"a missing row": strings.NewReplacer(`"rows":[{`, `"rows":[],"x":[{`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTableRig(t)
			r.create("a", "red")
			r.prints.Store(prints)
			differs := func() {
				t.Helper()
				await.State(t, "the difference is noticed", func() (bool, string) {
					direct, got := r.get(r.server, widgetsPath), r.get(r.serve, widgetsPath)
					return r.comparisons("different") > 0 && got == direct, fmt.Sprintf("%v\n%s\n%s", r.comparisons("different"), got,
						direct)
				})
			}
			differs()
			if r.saved("list") > 0 {
				t.Errorf("%d Tables are answered from memory", r.saved("list"))
			}
			r.prints.Store(nil)
			r.fromMemory(widgetsPath, "list")
			noticed := r.comparisons("different")
			r.prints.Store(prints)
			await.State(t, "a sample notices it", func() (bool, string) {
				got := r.get(r.serve, widgetsPath)
				return r.comparisons("different") > noticed, got
			})
			differs()
		})
	}
}
