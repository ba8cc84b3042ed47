package past

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

func formatOf(t *testing.T, resource, version, kind string) *format {
	t.Helper()
	tables, err := newTables()
	if err != nil {
		t.Fatal(err)
	}
	return tables.format(history.Type{Resource: resource, Type: sink.Type{Version: version, Kind: kind, Namespaced: true}})
}

// TestItems writes objects as they stand in a list: those of a watch, of a list, and of jsonb, whose members have
// another order.
func TestItems(t *testing.T) {
	pod, widget := formatOf(t, "pods", "v1", "Pod"), formatOf(t, "widgets.example.com", "v1", "Widget")
	for _, row := range []struct {
		format     *format
		text, want string
	}{
		{pod, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}`, `{"metadata":{"name":"a"},"spec":{}}`},
		{pod, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{}}`, `{"metadata":{"name":"a"},"spec":{}}`},
		{pod, `{"kind": "Pod", "spec": {"n": 1.50}, "metadata": {"name": "a"}, "apiVersion": "v1"}`,
			`{"metadata":{"name":"a"},"spec":{"n":1.50}}`},
		{widget, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`},
		{widget, `{"kind": "Widget", "a": "<", "metadata": {"name": "a"}, "apiVersion": "example.com/v1"}`,
			`{"a":"\u003c","apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`},
	} {
		if got, err := row.format.item([]byte(row.text)); err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v, want %s", row.text, got, err, row.want)
		}
	}
	if got, err := pod.item([]byte(`{"kind": `)); err == nil {
		t.Errorf("a torn text is %s", got)
	}
}

// Objects can be selected by the fields that the API server selects by.
func TestSelectableFields(t *testing.T) {
	const event = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e","namespace":"n"},"reason":"Killing",` +
		`"regarding":{"kind":"Pod","name":"a"},"reportingController":"kubelet","type":"Normal"}`
	certificates := func(kind string) string {
		return `{"apiVersion":"certificates.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"c"},"spec":{"signerName":"s/n"}}`
	}
	const slice = `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"r"},"spec":{"driver":"gpu"}}`
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"nodeName":"one"},"status":{"podIPs":[{"ip":"::1"}]}}`
	const set = `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"a"},"status":{"replicas":1}}`
	for _, row := range []struct {
		resource, version, kind, text, selector string
		selects, refused                        bool
	}{
		{"events.events.k8s.io", "v1", "Event", event, "regarding.name=a,regarding.kind=Pod,reason=Killing", true, false},
		{"events.events.k8s.io", "v1", "Event", event, "reportingController=kubelet,type!=Warning", true, false},
		{"events.events.k8s.io", "v1", "Event", event, "regarding.uid=1", false, false},
		{"events.events.k8s.io", "v1", "Event", event, "involvedObject.name=a", false, true},
		{"certificatesigningrequests.certificates.k8s.io", "v1", "CertificateSigningRequest",
			certificates("CertificateSigningRequest"), "spec.signerName=s/n", true, false},
		{"clustertrustbundles.certificates.k8s.io", "v1beta1", "ClusterTrustBundle",
			certificates("ClusterTrustBundle"), "spec.signerName=s/n", true, false},
		{"resourceslices.resource.k8s.io", "v1", "ResourceSlice", slice, "spec.driver=gpu,spec.nodeName=", true, false},
		{"pods", "v1", "Pod", pod, "spec.host=one", true, false},
		{"pods", "v1", "Pod", pod, "status.podIPs=::1", false, false},
		{"replicasets.apps", "v1", "ReplicaSet", set, "status.replicas=1", false, true},
	} {
		f := formatOf(t, row.resource, row.version, row.kind)
		selector, err := fields.ParseSelector(row.selector)
		if err != nil {
			t.Fatal(err)
		}
		if selector, err = selector.Transform(f.fieldLabel); err != nil {
			if !row.refused {
				t.Errorf("%s by %s: %v", row.resource, row.selector, err)
			}
			continue
		}
		decoded, _, err := f.Decode([]byte(row.text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, values, err := f.attributes(decoded)
		if got := selector.Matches(values); err != nil || got != row.selects || row.refused {
			t.Errorf("%s by %s: %t, %v", row.resource, row.selector, got, err)
		}
	}
}

// TestDocument decodes what selectors use, and writes the object with another revision.
func TestDocument(t *testing.T) {
	f := formatOf(t, "pods", "v1", "Pod")
	const text = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","labels":{"l":"1"},"managedFields":[{"manager":"m"}]},` +
		`"spec":{"nodeName":"n\u00e9","hostNetwork":true,"schedulerName":7},"status":{"phase":null,"podIP":["x"]}}`
	decoded, _, err := f.Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	labels, fields, err := f.attributes(decoded)
	if err != nil || labels["l"] != "1" {
		t.Errorf("labels %v, %v", labels, err)
	}
	if fields := decoded.(*document).ManagedFields; fields != nil {
		t.Errorf("managedFields are decoded: %v", fields)
	}
	for _, spec := range []string{`[]`, `null`, `"text"`} { // which a hostile history may have
		decoded, _, err := f.Decode([]byte(`{"metadata":{"name":"a"},"spec":`+spec+`}`), nil, nil)
		if err != nil || decoded.(*document).selected["spec.nodeName"] != "" {
			t.Errorf("spec %s: %v, %v", spec, decoded, err)
		}
	}
	for label, want := range map[string]string{
		"metadata.name": "a", "metadata.namespace": "n", "spec.nodeName": "né", "spec.hostNetwork": "true",
		"spec.schedulerName": "7", "spec.restartPolicy": "", "status.phase": "", "status.podIP": "",
	} {
		if got, ok := fields[label]; !ok || got != want {
			t.Errorf("%s is %q, %t, want %q", label, got, ok, want)
		}
	}
	if _, _, err := f.fieldLabel("status.podIP", "x"); err != nil {
		t.Error(err)
	}
	if _, _, err := f.fieldLabel("spec.image", "x"); err == nil {
		t.Error("a field that cannot be selected by is accepted")
	}
	d := decoded.DeepCopyObject().(*document)
	d.ResourceVersion = "9"
	changed, err := runtime.Encode(f, d)
	var about struct {
		Metadata struct {
			ResourceVersion string
			ManagedFields   []any
		}
	}
	if err != nil || json.Unmarshal(changed, &about) != nil || about.Metadata.ResourceVersion != "9" ||
		len(about.Metadata.ManagedFields) != 1 {
		t.Errorf("%s, %v", changed, err)
	}
	for _, text := range []string{``, `[]`, `{"metadata":[]}`, `{"metadata":{"name":1}}`, `{}`} {
		if o, _, err := f.Decode([]byte(text), nil, nil); err == nil {
			t.Errorf("%q is %v", text, o)
		}
	}
}

// FuzzPath parses the addresses of requests.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"/at/now/api", "/at/revision/7/api/v1/pods", "/at/10:42", "/at/-15m/speed/60/apis",
		"/at/", "/", "/at/now/speed/-1/x", "/at/revision", "/at/now/speed/NaN/x"} {
		f.Add(path, "speed=2")
	}
	s := &Server{now: func() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }}
	f.Fuzz(func(t *testing.T, path, query string) {
		p, err := s.parsePath(&url.URL{Path: path, RawQuery: query})
		if err != nil {
			return
		}
		if p.path == "" || p.path[0] != '/' || !(p.speed >= 0 && p.speed <= history.MaxSpeed) || p.moment.Time.After(s.now()) {
			t.Errorf("%q?%s is %+v", path, query, p)
		}
	})
}

// TestDiscovery shows groups and resources, and nothing else.
func TestDiscovery(t *testing.T) {
	types := []history.Type{
		{Resource: "pods", Type: sink.Type{Version: "v1", Kind: "Pod", Namespaced: true}},
		{Resource: "deployments.apps", Type: sink.Type{Version: "v1", Kind: "Deployment", Namespaced: true}},
		{Resource: "widgets.example.com", Type: sink.Type{Version: "v2", Kind: "Widget"}},
	}
	for path, want := range map[string]string{
		"api": `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}`,
		"apis/example.com": `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"groupVersion":"example.com/v2","version":"v2"}],` +
			`"preferredVersion":{"groupVersion":"example.com/v2","version":"v2"}}`,
		"api/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"","namespaced":true,` +
			`"kind":"Pod","verbs":["get","list","watch"]}]}`,
	} {
		if got, err := json.Marshal(discover(types, path)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", path, got, err, want)
		}
	}
	for _, path := range []string{"", "api/v2", "apis/none", "apis/example.com/v1", "apis/example.com/v2/x", "openapi/v3",
		"apis/"} {
		if found := discover(types, path); found != nil {
			t.Errorf("%q is %+v", path, found)
		}
	}
}

// TestDecodedText refuses a text that is not one object, wherever its fault is: it would spoil the list around it.
func TestDecodedText(t *testing.T) {
	f := formatOf(t, "pods", "v1", "Pod")
	const text = `{"metadata":{"name":"a","managedFields":[{"x":1}]},"spec":{"nodeName":"n"},"status":{"x":[1,{"y":"z"}]}}`
	if _, _, err := f.Decode([]byte(text), nil, nil); err != nil {
		t.Fatal(err)
	}
	for i := range text {
		if o, _, err := f.Decode([]byte(text[:i]), nil, nil); err == nil {
			t.Errorf("%s is %+v", text[:i], o)
		}
	}
	for _, more := range []string{"x", "}", `{"metadata":{}}`, "null"} {
		if o, _, err := f.Decode([]byte(text+more), nil, nil); err == nil {
			t.Errorf("%s is %+v", text+more, o)
		}
	}
}
