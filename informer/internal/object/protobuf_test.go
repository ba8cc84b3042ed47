package object

import (
	"math/rand"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

type generated interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// TestGeneratedCodeIsTheTwin compares random objects of every kind of the API with the generated code's
// decoding.
func TestGeneratedCodeIsTheTwin(t *testing.T) {
	const seed, rounds = 1, 5
	random := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed),
		serializer.NewCodecFactory(scheme.Scheme)).RandSource(rand.NewSource(seed))
	in := newInterner(Options{})
	kinds := 0
	for gvk, goType := range scheme.Scheme.AllKnownTypes() {
		want, ok := reflect.New(goType).Interface().(generated)
		if _, object := want.(metav1.Object); !ok || !object || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		kinds++
		m := messageOf(goType)
		if m == nil {
			t.Errorf("%v: its tags do not describe it", gvk)
			continue
		}
		for range rounds {
			original := reflect.New(goType).Interface().(generated)
			random.Fill(original)
			text, err := original.Marshal()
			if err != nil {
				t.Fatal(gvk, err)
			}
			got := reflect.New(goType).Interface().(generated)
			want := reflect.New(goType).Interface().(generated)
			if err := want.Unmarshal(text); err != nil {
				t.Fatal(gvk, err)
			}
			if err := m.decode(in, reflect.ValueOf(got).Elem(), text); err != nil {
				t.Fatal(gvk, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%v: got %v, want %v", gvk, got, want)
			}
		}
	}
	if kinds < 50 {
		t.Errorf("only %d kinds", kinds)
	}
}
