package store

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

func TestKeysFindAsASliceDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.OneOf(keysOf(), rapid.Custom(func(t *rapid.T) keepwatch.Key {
			bytes := rapid.StringOfN(rapid.RuneFrom([]rune("ab-.0/\x00\u00ff")), 0, 12, -1)
			return key(rapid.SampledFrom(namespaces).Draw(t, "namespace"), bytes.Draw(t, "name"))
		}))
		twin := []keepwatch.Key{any.Draw(t, "first")}
		k := newKeys(twin)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				key := any.Draw(t, "key")
				i, found := slices.BinarySearchFunc(twin, key, keepwatch.Key.Compare)
				if !found {
					before := *k
					list := slices.Clone(k.list)
					k, twin = k.insert(i, key), slices.Insert(twin, i, key)
					if !slices.Equal(before.list, list) {
						t.Fatal("insert changed the keys it was given")
					}
				}
			},
			"remove": func(t *rapid.T) {
				if len(twin) > 1 {
					i := rapid.IntRange(0, len(twin)-1).Draw(t, "i")
					k, twin = k.remove(i), slices.Delete(twin, i, i+1)
				}
			},
			"replace": func(t *rapid.T) {
				lower := any.Draw(t, "lower")
				if lower.Compare(twin[0]) < 0 {
					k, twin[0] = k.replace(0, lower), lower
				}
			},
			"find": func(t *rapid.T) {
				key := any.Draw(t, "key")
				i, found := k.find(key)
				wantI, want := slices.BinarySearchFunc(twin, key, keepwatch.Key.Compare)
				if i != wantI || found != want {
					t.Fatalf("find %q in %q: %d, %v; want %d, %v", key, twin, i, found, wantI, want)
				}
			},
			"": func(t *rapid.T) {
				if !slices.Equal(k.list, twin) {
					t.Fatalf("contains %q, want %q", k.list, twin)
				}
				for i, key := range twin {
					if got, found := k.find(key); got != i || !found {
						t.Fatalf("find %q in %q: %d, %v", key, twin, got, found)
					}
				}
			},
		})
	})
}
