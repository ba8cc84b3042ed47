package controlplane_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

const (
	asJSON         = "application/json"
	asProtobuf     = "application/vnd.kubernetes.protobuf"
	asMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asTable        = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asTableBeta    = "application/json;as=Table;g=meta.k8s.io;v=v1beta1"
	asMetadataPB   = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// The read path's responses equal the library's byte by byte. The test compares two servers on one
// etcd, of which one has the read path.
func TestReadPathIsExact(t *testing.T) {
	t.Parallel()
	own := start(t, controlplane.Options{TemporaryEtcd: true})
	library := start(t, controlplane.Options{Etcd: own.EtcdCluster(), Storage: controlplane.UpstreamStorage})
	c := connect(t, own.RESTConfig())
	widgets := newCRD(t, c, "widgets")
	open(t, connect(t, library.RESTConfig()), widgets)
	first := fill(t, c, widgets)
	open(t, c, widgets)
	newest := lastRevision(t, c)
	custom := "/apis/" + widgets.Group + "/v1/namespaces/default/widgets"

	all := newRequests()
	paths := []string{"/api/v1/namespaces/web/pods", "/api/v1/configmaps", "/api/v1/nodes", "/apis/" + widgets.Group +
		"/v1/widgets"}
	if !testing.Short() {
		paths = append(paths, "/api/v1/pods", "/api/v1/namespaces/we/pods", "/api/v1/namespaces", "/api/v1/secrets",
			"/api/v1/endpoints",
			"/apis/apps/v1/deployments", custom)
	}
	readUpTo(t, newest, paths, own, library)
	answered := counted(t, own.RESTConfig(), "keepwatch_readpath_answered_total")
	requested := 0.0
	for _, path := range paths {
		isCustom := strings.HasPrefix(path, "/apis/"+widgets.Group)
		for _, query := range []string{
			"", "resourceVersion=" + newest, "resourceVersion=" + newest + "&resourceVersionMatch=Exact", "limit=1", "limit=2",
			"limit=500",
			"resourceVersion=" + newest + "&resourceVersionMatch=NotOlderThan&limit=1", "labelSelector=tier%3Da",
			"labelSelector=tier+in+(a,b),!none", "labelSelector=tier%3Da&limit=2",
			"fieldSelector=metadata.name%3Dp1", "fieldSelector=metadata.namespace%3Dweb", "fieldSelector=metadata.name!%3Dp1",
			"fieldSelector=metadata.namespace%3Dweb,metadata.name%3Dp1",
			"watch=true&timeoutSeconds=1&resourceVersion=" + first, "watch=1&timeoutSeconds=1&resourceVersion=0",
			"watch=1&timeoutSeconds=1&labelSelector=tier%3Da",
			"watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1",
		} {
			for _, accept := range []string{asJSON, asProtobuf, asMetadataList, asMetadataPB, asTable, "*/*",
				asJSON + ";pretty=1", asMetadataList + ";pretty=true"} {
				if strings.HasPrefix(query, "watch") && strings.Contains(accept, "pretty") {
					continue // the library answers
				}
				if isCustom && accept == asProtobuf {
					continue // not acceptable
				}
				if strings.HasPrefix(query, "watch") {
					accept = strings.Replace(accept, "MetadataList", "Metadata", 1)
				}
				if strings.Contains(query, "limit") && accept != asJSON && accept != asTable {
					continue // tokens differ, and with them lengths
				}
				requested++
				all.send(query, func() error { return same(t, own.RESTConfig(), library.RESTConfig(), path+"?"+query, accept) })
			}
			for _, include := range []string{"None", "Object", "Metadata"} {
				for _, accept := range []string{asTable, asTableBeta} {
					requested++
					all.send(query, func() error {
						return same(t, own.RESTConfig(), library.RESTConfig(), path+"?"+query+"&includeObject="+include, accept)
					})
				}
			}
		}
	}
	for _, path := range []string{"/api/v1/namespaces/web/pods/p1", "/api/v1/namespaces/web", "/api/v1/nodes/n1",
		custom + "/w0", custom + "/w1"} {
		for _, accept := range []string{asJSON, asProtobuf, asMetadata, asTable, "application/json;q=0.5,text/plain",
			asJSON + ";pretty=1", asMetadata + ";pretty=1"} {
			if strings.HasPrefix(path, custom) && accept == asProtobuf {
				continue
			}
			requested++
			all.send(path, func() error { return same(t, own.RESTConfig(), library.RESTConfig(), path, accept) })
		}
	}
	if err := all.wait(); err != nil {
		t.Fatal(err)
	}
	if now := counted(t, own.RESTConfig(), "keepwatch_readpath_answered_total"); now-answered < requested {
		t.Errorf("%v of %v requests were answered by the read path", now-answered, requested)
	}
	for _, path := range []string{
		"/api/v1/namespaces/web/pods/none", "/api/v1/namespaces/web/nodes", "/api/v1/pods?fieldSelector=spec.none%3Da",
		"/api/v1/pods?labelSelector=%3D%3D",
		"/api/v1/pods?resourceVersion=a", "/api/v1/pods?resourceVersionMatch=Exact", "/api/v1/pods?limit=1&continue=a",
		custom + "?fieldSelector=spec.size%3D3",
		"/api/v1/pods?sendInitialEvents=true", custom + "/none", "/api/v1/namespaces?limit=9&continue=" + otherToken,
		custom + "/w1?resourceVersion=99999", custom + "?resourceVersion=99999",
		"/api/v1/limitranges", "/api/v1/pods?includeObject=all",
		"/api/v1/nodes/n1?resourceVersion=99999", "/api/v1/pods?resourceVersion=99999", "/api/v1/pods?pretty=true",
		"/api/v1/nones", "/api/v1/watch/pods?timeoutSeconds=1&resourceVersion=" + first,
	} {
		for _, accept := range []string{asJSON, asTable, "application/yaml"} {
			all.send(path, func() error { return same(t, own.RESTConfig(), library.RESTConfig(), path, accept) })
		}
	}
	if err := all.wait(); err != nil {
		t.Fatal(err)
	}
}

// apiextensions-apiserver treats an object with a field items as a list. It answers the requests of
// such kinds itself.
func TestObjectsThatLookLikeLists(t *testing.T) {
	t.Parallel()
	own := start(t, controlplane.Options{TemporaryEtcd: true})
	library := start(t, controlplane.Options{Etcd: own.EtcdCluster(), Storage: controlplane.UpstreamStorage})
	c := connect(t, own.RESTConfig())
	items := apiextensionsv1.JSONSchemaProps{Type: "array",
		Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: new(true),
		}}}
	listed := newCRD(t, c, "listed", func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
		v.Schema.OpenAPIV3Schema.Properties["items"] = items
	})
	unknown := newCRD(t, c, "unknown", func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
		v.Schema.OpenAPIV3Schema.XPreserveUnknownFields = new(true)
	})
	for _, resource := range []schema.GroupVersionResource{listed, unknown} {
		for name, items := range map[string][]any{"none": {}, "two": {map[string]any{"kind": "A"},
			map[string]any{"kind": "B"}}} {
			o := &unstructured.Unstructured{Object: map[string]any{"items": items}}
			o.SetAPIVersion(resource.GroupVersion().String())
			o.SetKind(strings.ToUpper(resource.Resource[:1]) + resource.Resource[1:])
			o.SetName(name)
			// The object is stored; only the response can't be encoded.
			if _, err := c.dynamic.Resource(resource).Namespace("default").Create(t.Context(), o,
				metav1.CreateOptions{}); err != nil {
				t.Logf("%s: %v", name, err)
			}
		}
		open(t, connect(t, library.RESTConfig()), resource)
		path := "/apis/" + resource.Group + "/v1/namespaces/default/" + resource.Resource
		for _, accept := range []string{asJSON, asTable} {
			for _, of := range []string{"", "/none", "/two"} {
				must(0, same(t, own.RESTConfig(), library.RESTConfig(), path+of, accept))(t)
			}
		}
	}
}

// fill creates objects. Their history begins after the returned revision.
func fill(t *testing.T, c clients, widgets schema.GroupVersionResource) (first string) {
	t.Helper()
	core := c.typed.CoreV1()
	first = must(core.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "first"}},
		metav1.CreateOptions{}))(t).ResourceVersion
	for _, name := range []string{"web", "we"} {
		must(core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{}))(t)
		for i := range 6 {
			labels := map[string]string{"tier": string(rune('a' + i%3))}
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: labels,
					Annotations: map[string]string{"note": `<&> "é"` + "\u2028"}},
				Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}
			pod = must(core.Pods(name).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
			if i == 0 {
				ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}
				pod.Status.Phase = corev1.PodFailed
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 3, LastTerminationState: ended}}
				must(core.Pods(name).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)
			}
		}
		must(0, core.Pods(name).Delete(t.Context(), "p5", metav1.DeleteOptions{}))(t)
	}
	must(core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		metav1.CreateOptions{}))(t)
	createMany(t, c, "web", 300, func(i int) *corev1.ConfigMap { // more than is sent without compression
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i),
			Labels: map[string]string{"tier": "a"}}, Data: map[string]string{"k": strings.Repeat("v", 700)}}
	})
	for i, spec := range []map[string]any{{}, {"due": "2001-01-01T00:00:00Z"}, {"due": "soon"}, {"due": ""}} {
		w := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		w.SetAPIVersion(widgets.Group + "/v1")
		w.SetKind("Widgets")
		w.SetName(fmt.Sprint("w", i))
		w.SetLabels(map[string]string{"tier": "a"})
		must(c.dynamic.Resource(widgets).Namespace("default").Create(t.Context(), w, metav1.CreateOptions{}))(t)
	}
	return first
}

// createMany creates config maps, several at a time: etcd writes them to the disk together.
func createMany(t *testing.T, c clients, namespace string, n int, of func(i int) *corev1.ConfigMap) {
	t.Helper()
	var creates errgroup.Group
	creates.SetLimit(16)
	for i := range n {
		creates.Go(func() error {
			return second(c.typed.CoreV1().ConfigMaps(namespace).Create(t.Context(), of(i), metav1.CreateOptions{}))
		})
	}
	must(0, creates.Wait())(t)
}

// open makes a server open its storage of a custom resource.
func open(t *testing.T, c clients, widgets schema.GroupVersionResource) {
	t.Helper()
	await.State(t, "the storage of custom resources is ready", func() (bool, string) {
		_, err := c.dynamic.Resource(widgets).Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// lastRevision writes a last object and returns its revision: both servers have to wait for it.
func lastRevision(t *testing.T, c clients) string {
	t.Helper()
	last := must(c.typed.CoreV1().Secrets("default").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{}))(t)
	return last.ResourceVersion
}

// readUpTo waits until servers have read lists up to a revision. A server refuses a revision that it has not read
// within 3 s, and answers a request for any state with an older one.
func readUpTo(t *testing.T, newest string, paths []string, servers ...*running) {
	t.Helper()
	for _, server := range servers {
		for _, path := range paths {
			await.State(t, path+" is read up to "+newest, func() (bool, string) {
				answer, err := request(t.Context(), server.RESTConfig(), path+"?resourceVersion="+newest, asJSON, "identity")
				return err == nil && answer.status == http.StatusOK, fmt.Sprint(answer, err)
			})
		}
	}
}

// otherToken is a continue token of pods, after one in the namespace "kube-public":
// {"v":"meta.k8s.io/v1","rv":-1,"start":"/kube-public/p1\u0000"}.
const otherToken = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiL2t1YmUtcHVibGljL3AxXHUwMDAwIn0"

// token matches a continue token, which is opaque.
var token = regexp.MustCompile(`"continue":"[^"]+"`)

// age matches an age in a table.
var age = regexp.MustCompile(`"(\d+[smhdy])+"|\((\d+[smhdy])+ ago\)`)

// requests are those of a test, as many at a time as a server answers in the minute after which it gives up on one, on
// any machine. Watches wait for a second; lists compute.
type requests struct{ lists, watches errgroup.Group }

func newRequests() *requests {
	r := &requests{}
	r.lists.SetLimit(16)
	r.watches.SetLimit(64)
	return r
}

// send sends the requests of a path or a query.
func (r *requests) send(path string, requests func() error) {
	if strings.Contains(path, "watch") {
		r.watches.Go(requests)
	} else {
		r.lists.Go(requests)
	}
}

func (r *requests) wait() error { return errors.Join(r.lists.Wait(), r.watches.Wait()) }

// same sends a request to both servers, with and without compression, and compares the responses.
func same(t *testing.T, own, library *rest.Config, path, accept string) error {
	var all errgroup.Group
	all.Go(func() error { return sameAs(t, own, library, path, accept, "identity") })
	watch := strings.Contains(path, "watch")
	if (!watch || strings.Contains(path, "sendInitialEvents")) && (accept == asJSON || accept == asTable ||
		accept == asProtobuf) {
		all.Go(func() error { return sameAs(t, own, library, path, accept, "gzip") })
	} // else it is not compressed, or what is compressed was compared
	return all.Wait()
}

func sameAs(t *testing.T, own, library *rest.Config, path, accept, encoding string) error {
	watch := strings.Contains(path, "watch")
	a, b, err := requestBoth(t.Context(), own, library, path, accept, encoding)
	// On a busy machine a watch's second may end before the watch has read everything from etcd.
	for seconds := 4; err == nil && watch && a != b && seconds < 100; seconds *= 4 {
		longer := strings.Replace(path, "timeoutSeconds=1", fmt.Sprint("timeoutSeconds=", seconds), 1)
		a, b, err = requestBoth(t.Context(), own, library, longer, accept, encoding)
	}
	if err != nil {
		return fmt.Errorf("GET %s as %s, %s: %w", path, accept, encoding, err)
	}
	if a != b {
		t.Errorf("GET %s as %s, %s:\nread path: %s\nlibrary:   %s", path, accept, encoding, a.difference(b), b.difference(a))
	}
	return nil
}

func requestBoth(ctx context.Context, own, library *rest.Config, path, accept,
	encoding string) (a, b response, err error) {
	var both errgroup.Group
	both.Go(func() (err error) { a, err = request(ctx, own, path, accept, encoding); return err })
	both.Go(func() (err error) { b, err = request(ctx, library, path, accept, encoding); return err })
	if err := both.Wait(); err != nil {
		return a, b, err
	}
	if strings.Contains(path, "watch") { // the time may end before everything is sent, bookmarks too
		n := min(len(a.body), len(b.body))
		a.body, b.body = a.body[:n], b.body[:n]
	}
	return a, b, nil
}

// response has the parts of a response that must be equal.
type response struct {
	status                         int
	media, encoding, warning, body string
}

// difference describes the response from its first difference to another one on.
func (r response) difference(other response) string {
	at := 0
	for at < min(len(r.body), len(other.body)) && r.body[at] == other.body[at] {
		at++
	}
	at = max(0, at-60)
	return fmt.Sprintf("%d %s %q %q, %d bytes, from byte %d: %.300q", r.status, r.media, r.encoding, r.warning,
		len(r.body), at, r.body[at:])
}

func request(ctx context.Context, config *rest.Config, path, accept, encoding string) (response, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return response{}, err
	}
	target, err := url.Parse(config.Host + path)
	if err != nil {
		return response{}, err
	}
	q := &http.Request{Method: http.MethodGet, URL: target, Header: http.Header{"Accept": {accept},
		"Accept-Encoding": {encoding}}}
	answer, err := client.Do(q.WithContext(ctx))
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	contentEncoding := answer.Header.Get("Content-Encoding")
	from := io.Reader(answer.Body)
	if contentEncoding == "gzip" {
		if from, err = gzip.NewReader(answer.Body); err == io.EOF {
			from = answer.Body // a watch that ended before it sent anything
		} else if err != nil {
			return response{}, err
		}
	}
	body, err := io.ReadAll(from)
	text := token.ReplaceAllString(string(body), `"continue":"token"`)
	if accept == asTable || accept == asTableBeta {
		text = age.ReplaceAllString(text, "age")
	}
	return response{answer.StatusCode, answer.Header.Get("Content-Type"), contentEncoding,
		strings.Join(answer.Header["Warning"], ""), text}, err
}

// Lists and watches with the selectable fields of a custom resource are answered from memory.
func TestSelectableFieldsFromMemory(t *testing.T) {
	t.Parallel()
	server := start(t, controlplane.Options{})
	c := connect(t, server.RESTConfig())
	resource := newCRD(t, c, "widgets", func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
		v.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.replicas"}}
	})
	open(t, c, resource)
	widgets := c.dynamic.Resource(resource).Namespace("default")
	for replicas := range int64(3) {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": resource.GroupVersion().String(),
			"kind": "Widgets", "metadata": map[string]any{"name": fmt.Sprint("w", replicas)},
			"spec": map[string]any{"replicas": replicas}}}
		must(widgets.Create(t.Context(), o, metav1.CreateOptions{}))(t)
	}
	const invalid = `keepwatch_readpath_delegated_total{reason="invalid"}`
	before := counted(t, server.RESTConfig(), invalid)
	selected := metav1.ListOptions{FieldSelector: "spec.replicas=1"}
	if list := must(widgets.List(t.Context(), selected))(t); len(list.Items) != 1 || list.Items[0].GetName() != "w1" {
		t.Errorf("the list has %v", list.Items)
	}
	w := must(widgets.Watch(t.Context(), selected))(t)
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added || event.Object.(metav1.Object).GetName() != "w1" {
		t.Errorf("the watch begins with %+v", event)
	}
	if n := counted(t, server.RESTConfig(), invalid) - before; n != 0 {
		t.Errorf("%v requests were delegated", n)
	}
	_, err := widgets.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.size=3"})
	if !apierrors.IsBadRequest(err) || counted(t, server.RESTConfig(), invalid) == before {
		t.Errorf("another field: %v", err)
	}
}

// counted returns the sum of a server's metrics whose names and labels have a prefix.
func counted(t *testing.T, config *rest.Config, prefix string) (sum float64) {
	t.Helper()
	shown := string(must(connect(t, config).typed.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t))
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, prefix) {
			sum += must(strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64))(t)
		}
	}
	return sum
}
