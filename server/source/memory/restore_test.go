package memory_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

// A restored key stays for its time, and one without for ever; a write of it begins another time.
func TestRestoredKeysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := must(memory.Restore(40, []memory.Value{
			{Prefix: podPrefix, Name: "a/short", Revision: 10, TTL: time.Minute},
			{Prefix: podPrefix, Name: "a/too", Revision: 11, TTL: time.Minute},
			{Prefix: podPrefix, Name: "a/long", Revision: 12, TTL: time.Hour},
			{Prefix: podPrefix, Name: "a/ever", Revision: 13},
			{Prefix: podPrefix, Name: "a/written", Revision: 14, TTL: time.Minute},
		}))(t)
		defer db.Close()
		names := func() []string {
			page := must(pods(db).List(t.Context(), keepwatch.ListRequest{}))(t)
			all := map[string]bool{}
			for _, o := range page.Objects {
				all[o.Key().Name] = true
			}
			return slices.Sorted(maps.Keys(all))
		}
		put(t, db, "a/written")
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if got := names(); len(got) != 5 {
			t.Errorf("before the end: %q", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := names(); !slices.Equal(got, []string{"ever", "long", "written"}) || db.Revision() != 42 {
			t.Errorf("after a minute: %q at %d", got, db.Revision())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := names(); !slices.Equal(got, []string{"ever", "written"}) {
			t.Errorf("after an hour: %q", got)
		}
	})
}
