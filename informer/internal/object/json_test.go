package object

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
)

func newJSONDecoder() *jsonDecoder { return &jsonDecoder{interner: newInterner(Options{})} }

func decodeInto(r *jsonDecoder, b []byte, into any) error {
	v := reflect.ValueOf(into).Elem()
	return r.typed(b, v)
}

// TestMachineryIsTheTwin compares random objects of every kind of the API with the API machinery's
// decoding, typed and unstructured.
func TestMachineryIsTheTwin(t *testing.T) {
	const seed, rounds = 2, 3
	random := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed),
		serializer.NewCodecFactory(scheme.Scheme)).RandSource(rand.NewSource(seed))
	r := newJSONDecoder()
	for gvk, goType := range scheme.Scheme.AllKnownTypes() {
		if _, ok := reflect.New(goType).Interface().(metav1.Object); !ok || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		for range rounds {
			original := reflect.New(goType).Interface()
			random.Fill(original)
			b, err := json.Marshal(original)
			if err != nil {
				t.Fatal(gvk, err)
			}
			got, want := reflect.New(goType).Interface(), reflect.New(goType).Interface()
			if err := utiljson.Unmarshal(b, want); err != nil {
				t.Fatal(gvk, err)
			}
			if err := decodeInto(r, b, got); err != nil {
				t.Fatalf("%v: %v of %s", gvk, err, b)
			}
			if !reflect.DeepEqual(got, want) && !equality.Semantic.DeepEqual(got, want) {
				t.Fatalf("%v: got %v, want %v", gvk, got, want)
			}
			wantUntyped(t, b)
		}
	}
}

func wantUntyped(t *testing.T, b []byte) {
	t.Helper()
	var want map[string]any
	if err := utiljson.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	got, err := newJSONDecoder().untyped(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// crd has the types of fields that custom resources have, and rarer ones.
type crd struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              spec            `json:"spec,omitempty"`
	Raw               json.RawMessage `json:"raw,omitempty"`
}

type spec struct {
	Replicas  *int32                       `json:"replicas,omitempty"`
	Small     int8                         `json:"small"`
	Ratio     float64                      `json:"ratio"`
	Unsigned  uint16                       `json:"unsigned"`
	Flag      bool                         `json:"flag"`
	Port      intstr.IntOrString           `json:"port"`
	CPU       resource.Quantity            `json:"cpu"`
	Limits    corev1.ResourceList          `json:"limits"`
	Every     metav1.Duration              `json:"every"`
	At        *metav1.MicroTime            `json:"at"`
	Since     metav1.Time                  `json:"since"`
	Data      []byte                       `json:"data"`
	Any       any                          `json:"any"`
	Extension runtime.RawExtension         `json:"extension"`
	Nested    map[string][]map[string]spec `json:"nested"`
	ByNumber  map[int]string               `json:"byNumber"`
	Fixed     [2]string                    `json:"fixed"`
	Untagged  string
	Hidden    string `json:"-"`
	_         string
	Embedded
	Odd  odd   `json:"odd"`
	Self *spec `json:"self"`
}

// odd is decoded by the API machinery.
type odd struct {
	Quoted int `json:"quoted,string"`
	*Embedded
}

type Embedded struct {
	Inner string `json:"inner"`
}

var documents = []string{
	`{"kind":"X","apiVersion":"a/v1","metadata":{"name":"a","labels":{"a":"b"},"creationTimestamp":"2026-11-01T10:00:00Z","generation":3},"spec":{"replicas":3,"flag":true,"port":"http","cpu":"100m","limits":{"cpu":1},"every":"1h","at":"2026-11-01T10:00:00.123456Z","data":"aGVsbG8=","any":{"a":[1,2.5,-0,1e3,"x",null,true]},"extension":{"a":1},"nested":{"a":[{"b":{"small":-3}}]},"byNumber":{"1":"one"},"fixed":["a","b"],"odd":{"quoted":"7","inner":"o"},"Untagged":"u","Hidden":"h","inner":"i","self":{"self":{}}},"raw":{"a": 1}}`,
	` { "metadata" : { "name" : "a\u0062\"\\" , "managedFields" : [ { "manager" : "m" , "fieldsV1" : { "f:a" : { } } } , null ] } , "spec" : null } `,
	`{"Metadata":{"name":"wrong case"},"metadata":{"NAME":"x","labels":null,"annotations":{},"finalizers":[],"ownerReferences":null,"deletionTimestamp":null,"creationTimestamp":null}}`,
	`{"spec":{"replicas":null,"small":null,"flag":null,"cpu":null,"port":null,"since":null,"any":null,"nested":null,"data":null,"limits":null,"Untagged":null}}`,
	`{"spec":{"unknown":{"deep":[{"a":"}]\"{"},[[]],{}]},"small":1}}`,
	`{"spec":{"small":300}}`, `{"spec":{"small":1.5}}`, `{"spec":{"small":"1"}}`, `{"spec":{"flag":"true"}}`,
	`{"spec":{"Untagged":1}}`,
	`{"spec":[]}`, `{"spec":{"since":"yesterday"}}`, `{"spec":{"limits":{"cpu":"x"}}}`, `{"metadata":{"labels":[1]}}`,
	`{"metadata":{"labels":{"a":1}}}`,
	`{"metadata":{"finalizers":{"a":1}}}`, `{"metadata":{"finalizers":"a"}}`, `{"spec":{"replicas":99999999999}}`,
	`{"spec":{"since":5}}`,
	`{}`, `{"metadata":{"name":"a","name":"b"}}`, `{"spec":{"nested":{"a":null,"b":[],"c":[null,{}]}}}`, `[]`, `null`,
	`"a"`, `12`,
}

// TestDocuments decodes rare and wrong documents.
func TestDocuments(t *testing.T) {
	r := newJSONDecoder()
	for _, d := range documents {
		wantSame[crd](t, r, []byte(d))
		wantSame[corev1.Pod](t, r, []byte(d))
		wantSame[metav1.PartialObjectMetadata](t, r, []byte(d))
	}
}

// wantSame checks that a text is decoded as by the API machinery, or rejected if that rejects it.
func wantSame[T any](t *testing.T, r *jsonDecoder, b []byte) {
	t.Helper()
	var got, want T
	wantErr, gotErr := utiljson.Unmarshal(b, &want), decodeInto(r, b, &got)
	if (gotErr == nil) != (wantErr == nil) {
		t.Errorf("%s: error %v, want %v", b, gotErr, wantErr)
	}
	if wantErr == nil && !reflect.DeepEqual(got, want) && !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", b, got, want)
	}
}

func FuzzJSON(f *testing.F) {
	for _, d := range append(documents, realPod(1)) {
		f.Add([]byte(d))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(false)) || bytes.Contains(b, []byte("\"fieldsV1\"")) &&
			bytes.ContainsAny(b, " \t\r\n") {
			// Values of duplicate names are merged in another way. White space in a field set is not removed.
			return
		}
		r := newJSONDecoder()
		wantSame[crd](t, r, b)
		wantSame[corev1.Pod](t, r, b)
		var want map[string]any
		if wantErr := utiljson.Unmarshal(b, &want); wantErr == nil && want != nil {
			wantUntyped(t, b)
		}
	})
}
