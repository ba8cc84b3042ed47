package sim

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScriptText(t *testing.T) {
	s := Script{
		{Actor: "writer", Point: AtWrite, N: 3, Choice: "put", Arg: 7},
		{Actor: "p0/source", Point: AtFrame, N: 0, Choice: "lying-bookmark", Arg: 255},
	}
	again, err := ParseScript("# a comment\n\n" + s.String())
	if err != nil || !slices.Equal(again, s) {
		t.Errorf("got %v, %v", again, err)
	}
	for _, bad := range []string{"writer write 3 put", "writer write three put 7", "writer write 3 put 256"} {
		if s, err := ParseScript(bad); err == nil {
			t.Errorf("%q is parsed as %v", bad, s)
		}
	}
}

// TestShrink shrinks a script in which three of many decisions fail together.
func TestShrink(t *testing.T) {
	var s Script
	for n := range 100 {
		s = append(s, Decision{Actor: "a", Point: AtFrame, N: n, Choice: "cut", Arg: uint8(n)})
	}
	fails := func(s Script) bool {
		matters := 0
		for _, d := range s {
			if d.Arg == 17 && d.N >= 5 || d.Arg == 18 || d.Arg == 90 && d.N > 60 {
				matters++
			}
		}
		return matters == 3
	}
	got := Shrink(s, fails)
	want := Script{
		{Actor: "a", Point: AtFrame, N: 5, Choice: "cut", Arg: 17},
		{Actor: "a", Point: AtFrame, N: 0, Choice: "cut", Arg: 18},
		{Actor: "a", Point: AtFrame, N: 61, Choice: "cut", Arg: 90},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestShrinkMutant shrinks a schedule that detected a bug, and checks that no further decision
// can be removed.
func TestShrinkMutant(t *testing.T) {
	for _, m := range Mutants {
		if m.Name != "forgetful-relist" {
			continue
		}
		for n := range 40 {
			o := Campaign{Seed: 1, Mutant: m}.Play(n, func(d *Director, m Mutant) Outcome { return bubble(t, d, m) })
			if !o.shows("P6") {
				continue
			}
			fails := func(s Script) bool { return bubble(t, Follow(s), m).shows("P6") }
			short := Shrink(o.Script, fails)
			t.Logf("%d of %d decisions:\n%s", len(short), len(o.Script), short)
			for i := range short {
				if fails(slices.Delete(slices.Clone(short), i, i+1)) {
					t.Errorf("%v can be removed", short[i])
				}
			}
			if len(short) > 8 {
				t.Errorf("%d decisions are left of %d", len(short), len(o.Script))
			}
			return
		}
		t.Error("no schedule detected it")
	}
}

// TestFaults checks that a point's faults have distinct names and can be drawn.
func TestFaults(t *testing.T) {
	for _, p := range points {
		names := map[string]bool{}
		for _, f := range Faults[p] {
			if names[f.Name] || f.Weight <= 0 {
				t.Errorf("%s %s is duplicate or never drawn", p, f.Name)
			}
			names[f.Name] = true
		}
	}
	if len(points) != len(Faults) {
		t.Errorf("%d points have faults, %d are known", len(Faults), len(points))
	}
}
