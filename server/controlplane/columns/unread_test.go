package columns

import (
	"math/rand"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// message is an object with protobuf.
type message interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// The rows of objects do not depend on the fields that are left out when they are decoded.
func TestRowsDoNotReadUnreadFields(t *testing.T) {
	const seed = 1
	random := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed),
		serializer.NewCodecFactory(scheme.Scheme)).NumElements(0, 3)
	compared := map[string]bool{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		example, err := scheme.Scheme.New(kind)
		if _, ok := example.(message); err != nil || !ok {
			continue
		}
		random.RandSource(rand.NewSource(seed))
		for resource, v := range views {
			table := Of(resource)
			if _, ok := v.row(example); !ok || table == nil {
				continue
			}
			for range 50 {
				o, whole, part := example.DeepCopyObject().(message), example.DeepCopyObject().(message),
					example.DeepCopyObject().(message)
				random.Fill(o)
				bytes, err := o.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				rest, ok := table.Unread.Without(nil, bytes)
				if !ok {
					t.Fatalf("%s: its message is none", kind)
				}
				if err := whole.Unmarshal(bytes); err != nil {
					t.Fatal(err)
				}
				if err := part.Unmarshal(rest); err != nil {
					t.Fatal(err)
				}
				want, _ := v.row(whole)
				got, _ := v.row(part)
				if !reflect.DeepEqual(got.Cells, want.Cells) || !reflect.DeepEqual(got.Conditions, want.Conditions) {
					t.Fatalf("%s: %v without its unread fields, %v with them", kind, got, want)
				}
			}
			compared[resource.String()] = true
		}
	}
	if len(compared) < 40 {
		t.Errorf("only %d resources have rows of messages: %v", len(compared), compared)
	}
}
