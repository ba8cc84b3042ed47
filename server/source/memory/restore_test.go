package memory_test

import (
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/memory"
)

// A restored database has the values at their revisions, and goes on after its own.
func TestRestore(t *testing.T) {
	db := must(memory.Restore(40, []memory.Value{
		{Prefix: podPrefix, Name: "a/one", Revision: 12, Value: []byte("v1")},
		{Prefix: podPrefix, Name: "b/two", Revision: 40, Value: []byte("v2")},
		{Prefix: "/registry/minions/", Name: "n", Revision: 7, Value: []byte("v3")},
	}))(t)
	defer db.Close()
	page := must(pods(db).List(t.Context(), keepwatch.ListRequest{}))(t)
	if page.Revision != 40 || len(page.Objects) != 2 ||
		page.Objects[0].Key() != (keepwatch.Key{Namespace: "a", Name: "one"}) || page.Objects[0].Revision() != 12 {
		t.Errorf("%d, %v", page.Revision, page.Objects)
	}
	c := db.Client(podPrefix).Kubernetes
	got := must(c.Get(t.Context(), podPrefix+"b/two", kubernetes.GetOptions{}))(t)
	if string(got.KV.Value) != "v2" || got.KV.ModRevision != 40 || got.KV.Version != 1 || got.Revision != 40 {
		t.Errorf("%+v", got)
	}
	if r := put(t, db, "a/one"); r != 41 {
		t.Errorf("the first write has revision %d", r)
	}
	if _, err := db.At(39); err == nil {
		t.Error("there is a history before the state")
	}
}
