package apiserver

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestConversionWebhook reads widgets in a version that a webhook converts to. While the webhook fails, lies or does
// not answer, reads of the stored version and of objects that were converted before go on, and afterwards all do.
func TestConversionWebhook(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	hook := startConverter(t)
	definition := widgetsInTwo()
	definition.Spec.Conversion = hook.conversion()
	amount := &definition.Spec.Versions[1]
	amount.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.amount"}}
	amount.Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{"amount": {Type: "integer"}}}
	s.define(definition)
	for _, server := range []*peer.Server{s.ours, s.theirs} {
		s.serves(server, "v1")
		s.serves(server, "v2")
	}
	const first, second = "/apis/" + customGroup + "/v1/namespaces/default/widgets", "/apis/" + customGroup +
		"/v2/namespaces/default/widgets"
	s.createWidget("default/a")
	s.create(widgetsIn("v2"), "Widget", "b", map[string]any{"spec": map[string]any{"amount": int64(4)}})
	s.shows(first+"/b", asJSON, `"size":4`)
	s.shows(second+"/a", asJSON, `"amount":3`)
	s.shows(second+"?fieldSelector=spec.amount%3D4", asJSON, `"name":"b"`)
	compare := func() {
		t.Helper()
		for _, path := range []string{first, second, second + "?fieldSelector=spec.amount%3D4",
			second + "?watch=1&timeoutSeconds=1&resourceVersion=0"} {
			for _, accept := range []string{asJSON, asTable} {
				s.same(path, accept, "")
			}
		}
		for _, name := range []string{"/a", "/b"} {
			s.same(second+name, asJSON, "")
			s.same(second+name, ofOne(asMetadataProtobuf), "")
		}
		s.answersFromMemory(second)
	}
	compare()

	for i, now := range []behavior{failing, renaming, silent} {
		touched := s.touch("b", string(now)).GetResourceVersion()
		s.shows(second+"/b?resourceVersion=0", asJSON, `"resourceVersion":"`+touched+`"`) // it is converted
		w := startWatch(t, client(t, s.ours, widgetsIn("v2")), touched)
		hook.set(now)
		size := string(rune('5' + i))
		s.patchWidget("a", `{"spec":{"size":`+size+`}}`)
		s.shows(first+"/a", asJSON, `"size":`+size)
		s.shows(second+"/b?resourceVersion=0", asJSON, `"amount":4`)
		if now != silent { // that takes the webhook's timeout, half a minute
			s.shows(second+"/a", asJSON, "500")
			s.shows(second, asJSON, "500")
			s.eventually("the watch ends", w.open)
			if received := w.events(t, 1); received[0].Type != watch.Error {
				t.Errorf("%s: the watch receives %v", now, received)
			}
		}
		hook.set(converting)
		s.shows(second+"/a", asJSON, `"amount":`+size)
		compare()
	}
}

// behavior is what a converter does with a request.
type behavior string

const (
	converting behavior = "converting"
	failing    behavior = "failing"
	renaming   behavior = "renaming" // which the API forbids
	silent     behavior = "silent"   // until it has another behavior
)

// converter is a conversion webhook: spec.size of v1 is spec.amount of v2.
type converter struct {
	server *httptest.Server

	mu      sync.Mutex
	now     behavior
	changed chan struct{} // closed when now changes
}

func startConverter(t *testing.T) *converter {
	c := &converter{now: converting, changed: make(chan struct{})}
	c.server = httptest.NewTLSServer(c)
	t.Cleanup(func() {
		c.set(failing)
		c.server.Close()
	})
	return c
}

func (c *converter) set(now behavior) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	close(c.changed)
	c.changed = make(chan struct{})
}

// conversion returns the part of a definition that names the webhook.
func (c *converter) conversion() *apiextensionsv1.CustomResourceConversion {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	return &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To(c.server.URL + "/convert"),
				CABundle: authority},
			ConversionReviewVersions: []string{"v1"},
		}}
}

func (c *converter) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	now := c.behavior(q)
	if now == failing {
		http.Error(w, "it fails", http.StatusInternalServerError)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID,
		Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, object := range review.Request.Objects {
		converted := &unstructured.Unstructured{}
		if err := converted.UnmarshalJSON(object.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		convert(converted, review.Request.DesiredAPIVersion)
		if now == renaming {
			converted.SetName("other")
		}
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: converted})
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // it fails if the server is gone
}

// behavior returns the current one, and waits while it is silent.
func (c *converter) behavior(q *http.Request) behavior {
	for {
		c.mu.Lock()
		now, changed := c.now, c.changed
		c.mu.Unlock()
		if now != silent {
			return now
		}
		select {
		case <-changed:
		case <-q.Context().Done():
			return failing
		}
	}
}

func convert(o *unstructured.Unstructured, version string) {
	from, to := "size", "amount"
	if version == customGroup+"/v1" {
		from, to = to, from
	}
	if spec, ok := o.Object["spec"].(map[string]any); ok && spec[from] != nil {
		o.Object["spec"] = map[string]any{to: spec[from]}
	}
	o.SetAPIVersion(version)
}
