package verbatim

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// Two lists show one object at one revision: in the same bytes, in an event, too, or in others, because the definition
// of the type has changed.
func TestContentOfObjects(t *testing.T) {
	f := NewFormat(Layout{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
		Representation{Encoding: JSON{}})
	item := func(text string) Object {
		raw := kube.Raw{Key: keepwatch.Key{Namespace: "ns", Name: "a"}, UID: "u", Revision: 7, Body: []byte(text)}
		o, _, err := f.Object(raw)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	of := item(`{"metadata":{"name":"a"},"data":{"d":"7"}}`)
	if event := item(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"d":"7"}}`); !event.Equal(
		of) || event.Sum() != of.Sum() || of.Sum() == 0 {
		t.Errorf("an event has another content: %+v, %+v", event, of)
	}
	if other := item(`{"metadata":{"name":"a"},"data":{"d":"8"}}`); other.Equal(of) || other.Sum() == of.Sum() {
		t.Errorf("another content is the same: %+v, %+v", other, of)
	}
}
