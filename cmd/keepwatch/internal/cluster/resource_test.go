package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// FuzzSelector checks that a selector is refused, or has one canonical form that selects the same
// objects: the form is sent to the server, and is part of the identity of a state on disk.
func FuzzSelector(f *testing.F) {
	f.Add("", "", "a", "b")
	f.Add("a=b,c!=d", "metadata.name=x,spec.nodeName!=n1", "a", "b")
	f.Add("a in (b,c),!d,e", `a=b\,c\=d\\`, "e", "")
	f.Add("a > 1, b<2", "a==b", "a", "2")
	f.Add(" a  notin ( b , , c ) ", "status.phase!=", "a", "c")
	f.Fuzz(func(t *testing.T, label, field, key, value string) {
		written := &Flags{LabelSelector: label, FieldSelector: field}
		first, err := written.Selection("")
		if err != nil {
			return
		}
		canonical := &Flags{LabelSelector: first.Labels, FieldSelector: first.Fields}
		again, err := canonical.Selection("")
		if err != nil || again != first {
			t.Fatalf("%+v came back as %+v, %v", first, again, err)
		}
		one := map[string]string{key: value}
		for _, set := range []map[string]string{nil, one} {
			if selectsLabels(t, label, set) != selectsLabels(t, first.Labels, set) {
				t.Errorf("-l %q and %q differ on %v", label, first.Labels, set)
			}
			if selectsFields(t, field, set) != selectsFields(t, first.Fields, set) {
				t.Errorf("--field-selector %q and %q differ on %v", field, first.Fields, set)
			}
		}
	})
}

func selectsLabels(t *testing.T, selector string, set labels.Set) bool {
	s, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(set)
}

func selectsFields(t *testing.T, selector string, set fields.Set) bool {
	s, err := fields.ParseSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(set)
}
