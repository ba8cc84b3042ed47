package faults

import (
	"fmt"
	"math"
	"testing"
)

func TestFateDependsOnSeedAndRequestAlone(t *testing.T) {
	fate := OneOf(0.9, 10_000, Storm())
	fates := func(seed uint64, resources ...string) map[string]string {
		drawn := make(map[string]string)
		for n := 1; n <= 50; n++ {
			for _, resource := range resources {
				f := fate.draw(seed, Request{Class: Watch, Resource: resource, Number: n})
				drawn[fmt.Sprint(resource, n)] = f.String()
			}
		}
		return drawn
	}
	first, again, alone, other := fates(1, "pods", "nodes"), fates(1, "nodes", "pods"), fates(1, "pods"), fates(2, "pods")
	same := 0
	for key, fault := range alone {
		if first[key] != fault || again[key] != fault {
			t.Errorf("%s met %s, %s and %s by the same seed", key, first[key], again[key], fault)
		}
		if other[key] == fault {
			same++
		}
	}
	if same > len(alone)/2 {
		t.Errorf("%d of %d fates are the same by another seed", same, len(alone))
	}
}

func TestOneOf(t *testing.T) {
	const n, share, bytes = 10_000, 0.25, 1000
	fate := OneOf(share, bytes, map[Class][]Fault{Watch: {Cut, End}})
	met := make(map[kind]int)
	for i := range n {
		f := fate.draw(7, Request{Class: Watch, Resource: "pods", Number: i})
		met[f.kind]++
		if f.after.bytes < 0 || f.after.bytes > bytes {
			t.Fatalf("drew %s, beyond %d bytes", f, bytes)
		}
		if f := fate.draw(7, Request{Class: List, Resource: "pods", Number: i}); f.kind != none {
			t.Fatalf("a LIST drew %s, which is not for it", f)
		}
	}
	for k, want := range map[kind]float64{none: n * (1 - share), cut: n * share / 2, end: n * share / 2} {
		if math.Abs(float64(met[k])-want) > n/50 {
			t.Errorf("%d requests met %q, want about %.0f", met[k], k, want)
		}
	}
}
