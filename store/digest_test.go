package store

import (
	"testing"

	"github.com/keepwatch/keepwatch"
)

// recomputed is the digest of a snapshot's objects.
func recomputed(s *Snapshot) (d digest) {
	for o := range s.All() {
		d = d.with(o)
	}
	return d
}

func TestDigestDependsOnContent(t *testing.T) {
	base := thingAt("a", 1)
	seen := map[digest]string{0: "nothing"}
	for what, o := range map[string]keepwatch.Object{
		"base":            base,
		"revision":        base.at(2),
		"uid":             base.withUID("a-2"),
		"namespace":       base.in("ns2"),
		"name":            base.with(func(t *thing) { t.key.Name = "b" }),
		"moved boundary":  base.with(func(t *thing) { t.key = key("n", "sa") }),
		"moved boundary2": base.with(func(t *thing) { t.key, t.uid = key("ns", "aa"), "-1" }),
		"eight bytes":     base.with(func(t *thing) { t.key.Name = "12345678" }),
		"nine bytes":      base.with(func(t *thing) { t.key.Name = "123456789" }),
		"long":            base.with(func(t *thing) { t.key.Name = "1234567812345678123456781" }),
	} {
		d := digest(0).with(o)
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
}

func TestDigestIsASum(t *testing.T) {
	a, b, c := thingAt("a", 1), thingAt("b", 2), thingAt("a", 3)
	if digest(0).with(a).with(b) != digest(0).with(b).with(a) {
		t.Error("the order matters")
	}
	if digest(0).with(a).with(b).without(a) != digest(0).with(b) {
		t.Error("without does not undo with")
	}
	if digest(0).with(a).with(b).replace(a, c) != digest(0).with(b).with(c) {
		t.Error("replace is not without and with")
	}
	if digest(0).with(a).with(a) == 0 {
		t.Error("twice is nothing")
	}
}

// The digest is the same everywhere, so that copies in different processes compare.
func TestDigestIsStable(t *testing.T) {
	if got, want := digest(0).with(thingAt("a", 1)), digest(0xe5f9b3e085c538ec); got != want {
		t.Errorf("digest is %#x, was %#x", uint64(got), uint64(want))
	}
}
