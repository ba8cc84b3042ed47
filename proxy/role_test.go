package proxy

import (
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/kube"
)

// A write counts if it changes rules, subjects or the reference, in the namespace of the object.
func TestChangesThatGrant(t *testing.T) {
	decode := func(namespace, body string) keepwatch.Object {
		if body == "" {
			return nil
		}
		o, err := decodeRole(kube.Raw{Key: keepwatch.Key{Namespace: namespace, Name: "r"}, Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const (
		binding = `{"metadata":{"name":"r"},"subjects":[{"kind":"User","name":"ada"}],"roleRef":{"kind":"Role","name":"view"}}`
		noted   = `{"metadata":{"name":"r","annotations":{"a":"b"}},"subjects":[{"kind":"User","name":"ada"}],"roleRef":{"kind":"Role","name":"view"}}`
		another = `{"metadata":{"name":"r"},"subjects":[{"kind":"User","name":"bob"}],"roleRef":{"kind":"Role","name":"view"}}`
		edit    = `{"metadata":{"name":"r"},"subjects":[{"kind":"User","name":"ada"}],"roleRef":{"kind":"Role","name":"edit"}}`
		rules   = `{"metadata":{"name":"r"},"rules":[{"verbs":["get"]}]}`
		more    = `{"metadata":{"name":"r"},"rules":[{"verbs":["get","list"]}]}`
		labeled = `{"metadata":{"name":"r","labels":{"a":"b"}},"rules":[{"verbs":["get"]}]}`
	)
	for _, c := range []struct {
		kind          keepwatch.ChangeType
		before, after string
		counts        bool
	}{
		{keepwatch.Added, "", binding, true},
		{keepwatch.Modified, binding, noted, false},
		{keepwatch.Modified, binding, another, true},
		{keepwatch.Modified, binding, edit, true},
		{keepwatch.Modified, rules, labeled, false},
		{keepwatch.Modified, rules, more, true},
		{keepwatch.Deleted, binding, binding, true},
	} {
		change := keepwatch.Change{Type: c.kind, Object: decode("shop", c.after), Prior: decode("shop", c.before)}
		if got := concerned([]keepwatch.Change{change})["shop"]; got != c.counts {
			t.Errorf("%v from %q to %q counts: %v", c.kind, c.before, c.after, got)
		}
	}
	cluster := keepwatch.Change{Type: keepwatch.Added, Object: decode("", rules)}
	local := keepwatch.Change{Type: keepwatch.Added, Object: decode("shop", rules)}
	if got := concerned([]keepwatch.Change{cluster, local}); len(got) != 1 || !got[""] {
		t.Errorf("a change of the cluster concerns %v", got)
	}
}
