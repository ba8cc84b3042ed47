package watchcache

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

type keyOnly keepwatch.Key

func (n keyOnly) Key() keepwatch.Key         { return keepwatch.Key(n) }
func (keyOnly) UID() keepwatch.UID           { return "u" }
func (keyOnly) Revision() keepwatch.Revision { return 1 }

// A scope iterates over the objects whose keys etcd would return, and counts as many: of every namespace, of one, below
// a part of a name, of one object, from any path on. Clients choose the path, in a token: it may end within a
// namespace.
func TestObjectsOfAScope(t *testing.T) {
	paths := []string{"", "n/", "ns/", "ns-a/", "ns/a", "ns/a/", "zz/", "a"}
	rapid.Check(t, func(t *rapid.T) {
		s := scope{namespaced: rapid.Bool().Draw(t, "namespaced"), recursive: true}
		objects := map[keepwatch.Key]keepwatch.Object{}
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			k := keepwatch.Key{Name: rapid.StringMatching("[ab][a-c.-]{0,3}").Draw(t, "name")}
			if s.namespaced {
				k.Namespace = rapid.SampledFrom([]string{"n", "ns", "ns-a", "ns.a", "ns0"}).Draw(t, "namespace")
			}
			objects[k] = keyOnly(k)
		}
		snapshot := snapshotOf(t, objects)
		s.path = rapid.SampledFrom(paths).Draw(t, "path")
		s.recursive = s.path == "" || strings.HasSuffix(s.path, "/")
		start := rapid.SampledFrom(append(paths,
			s.path+"b", s.path+"ab\x00", "ns/b\x00", "ns0/", "n", "ns", "ns\x00", "ns-")).Draw(t, "start")
		var want, got []string
		for key := range objects {
			path := key.String()
			if path == s.path || s.recursive && path >= start && strings.HasPrefix(path, s.path) {
				want = append(want, path)
			}
		}
		slices.Sort(want)
		for o := range s.objects(snapshot, start) {
			got = append(got, o.Key().String())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v from %q: %q, want %q", s, start, got, want)
		}
		if count := s.count(snapshot, start); count != int64(len(want)) {
			t.Fatalf("%+v from %q: %d, want %d", s, start, count, len(want))
		}
	})
}

func snapshotOf(t *rapid.T, objects map[keepwatch.Key]keepwatch.Object) *store.Snapshot {
	var all []keepwatch.Object
	for _, o := range objects {
		all = append(all, o)
	}
	s := store.New(store.Options{})
	list, err := s.Replace(context.Background(), keepwatch.Relist{To: 1})
	if err == nil {
		err = list.Put(context.Background(), all)
	}
	if err == nil {
		err = list.Commit(context.Background(), 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.Snapshot()
}
