package stream

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// TestEntries changes an index and a map in the same way. Names and UIDs are also some that no server gives.
func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index, twin, serials := NewEntries(), map[keepwatch.Key]Entry{}, map[string]uint64{}
		names := rapid.OneOf(rapid.StringMatching(`[a-z]{0,2}`), rapid.StringN(0, 300, -1).Filter(func(s string) bool {
			return !strings.Contains(s, "/")
		}))
		namespaces := rapid.StringMatching(`[a-z]?`)
		uids := rapid.OneOf(rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
			rapid.StringMatching(`[0-9a-fA-F-]{34,37}`), rapid.String())
		check := func(t *rapid.T) {
			got := map[keepwatch.Key]Entry{}
			for e := range index.All() {
				got[e.Key] = e
			}
			if !maps.Equal(got, twin) || index.Len() != len(twin) {
				t.Fatalf("%d entries: %v, want %v", index.Len(), got, twin)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "entries") {
					e := Entry{
						keepwatch.Key{Namespace: namespaces.Draw(t, "namespace"), Name: names.Draw(t, "name")},
						keepwatch.UID(uids.Draw(t, "uid")), keepwatch.Revision(rapid.Uint64().Draw(t, "revision")),
						Rendition{rapid.Uint64().Draw(t, "sum"), rapid.Uint64Range(0, 300).Draw(t, "number")},
					}
					index.Put(e)
					twin[e.Key], serials[e.Key.String()] = e, index.serial
				}
			},
			"remove": func(t *rapid.T) {
				keys := append(slices.Sorted(maps.Keys(serials)), "missing")
				from := rapid.IntRange(0, len(keys)-1).Draw(t, "from")
				for _, text := range keys[from:rapid.IntRange(from, len(keys)).Draw(t, "to")] {
					key := parseKey(text)
					index.Remove(key)
					delete(twin, key)
					delete(serials, text)
				}
			},
			"get": func(t *rapid.T) {
				for key, e := range twin {
					r, ok := index.get(key.String())
					if !ok || r.uid != e.UID || r.revision != e.Revision || r.rendition != e.Rendition ||
						r.serial != serials[key.String()] {
						t.Fatalf("%q: %v, %v, want %v with %d", key, r, ok, e, serials[key.String()])
					}
				}
				if _, ok := index.get("missing"); ok {
					t.Fatal("it has what was never added")
				}
			},
			"unseen": func(t *rapid.T) {
				seen, want := make(map[uint64]uint64), []string(nil)
				for key, serial := range serials {
					if serial%2 == 0 {
						seen[serial/64] |= 1 << (serial % 64)
					} else {
						want = append(want, key)
					}
				}
				slices.Sort(want)
				if got := index.unseen(seen, len(want)+1); !slices.Equal(got, want) {
					t.Fatalf("unseen are %q, want %q", got, want)
				}
				if some := index.unseen(seen, 3); len(some) != min(3, len(want)) || !slices.IsSorted(some) {
					t.Fatalf("three of the unseen ones are %q", some)
				}
			},
			"": check,
		})
	})
}

// TestEntriesAreSmall fills an index with the objects of a large cluster, replaces them, and removes them.
func TestEntriesAreSmall(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 50_000
	}
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before, index := heap(), NewEntries()
	random := rand.New(rand.NewPCG(1, 2))
	key := func(i int) keepwatch.Key {
		return keepwatch.Key{Namespace: fmt.Sprintf("team-%03d", i/1000), Name: fmt.Sprintf("web-7d9f8b6c5-%05d", i%1000)}
	}
	fill := func() {
		for i := range n {
			uid := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), i>>16, i&0xfff, i>>12, random.Uint64()>>16)
			index.Put(Entry{key(i), keepwatch.UID(uid), keepwatch.Revision(1e9 + i), Rendition{Sum: random.Uint64()}})
		}
	}
	fill()
	fill()
	const limit = 95 // 28 of which are the key
	if each := (heap() - before) / n; each > limit {
		t.Errorf("an entry takes %d bytes, more than %d", each, limit)
	} else {
		t.Logf("an entry takes %d bytes", each)
	}
	for i := range n {
		index.Remove(key(i))
	}
	if each := (heap() - before) / n; each > 10 {
		t.Errorf("a removed entry takes %d bytes", each)
	}
	runtime.KeepAlive(index)
}

func BenchmarkEntries(b *testing.B) {
	const n = 200_000
	keys := make([]string, n)
	index := NewEntries()
	for i := range keys {
		e := Entry{keepwatch.Key{Namespace: fmt.Sprintf("team-%03d", i/1000), Name: fmt.Sprintf("web-%05d", i)},
			keepwatch.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), keepwatch.Revision(i), Rendition{Sum: uint64(i)}}
		index.Put(e)
		keys[i] = e.Key.String()
	}
	b.Run("get", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			index.get(keys[i*7919%n])
		}
	})
	b.Run("set", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			key := keys[i*7919%n]
			r, _ := index.get(key)
			r.revision++
			index.set(key, r)
		}
	})
}
