package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// fakeSide is a state in memory, in parts of any size.
type fakeSide struct {
	state map[keepwatch.Key]string
	size  int
}

func (s fakeSide) String() string { return "fake" }

func (s fakeSide) read(_ context.Context, _ keepwatch.Revision, emit func(part) error) error {
	keys := slices.SortedFunc(maps.Keys(s.state), keepwatch.Key.Compare)
	for some := range slices.Chunk(keys, s.size) {
		var p part
		for _, key := range some {
			p.objects = append(p.objects, &object{key: key, digest: sha256.Sum256([]byte(s.state[key]))})
		}
		if err := emit(p); err != nil {
			return err
		}
	}
	return nil
}

func (s fakeSide) content(_ context.Context, key keepwatch.Key) (content, error) {
	return parseContent(fmt.Appendf(nil, `{"value":%q}`, s.state[key]), false)
}

// TestMergeIsTheNaiveDifference compares random states with the difference of two maps.
func TestMergeIsTheNaiveDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.MapOf(rapid.Custom(func(t *rapid.T) keepwatch.Key {
			return keepwatch.Key{Namespace: rapid.SampledFrom([]string{"", "a", "a-b", "a.b", "ab"}).Draw(t, "namespace"),
				Name: rapid.SampledFrom([]string{"a", "b", "b-a", "c"}).Draw(t, "name")}
		}), rapid.SampledFrom([]string{"1", "2"}))
		size := rapid.IntRange(1, 4)
		server := fakeSide{state.Draw(t, "server"), size.Draw(t, "size")}
		against := fakeSide{state.Draw(t, "against"), size.Draw(t, "size")}
		r, err := compare(t.Context(), server, against, func(context.Context) (keepwatch.Revision, error) { return 1, nil },
			1)
		if err != nil {
			t.Fatal(err)
		}
		want := map[keepwatch.Key]Kind{}
		for key, value := range server.state {
			other, ok := against.state[key]
			if !ok {
				want[key] = Missing
			} else if other != value {
				want[key] = Different
			}
		}
		for key := range against.state {
			if _, ok := server.state[key]; !ok {
				want[key] = Extra
			}
		}
		got := map[keepwatch.Key]Kind{}
		for i, d := range r.Differences {
			got[d.Key()] = d.Kind
			if i > 0 && r.Differences[i-1].Key().Compare(d.Key()) >= 0 {
				t.Errorf("%v follows %v", d.Key(), r.Differences[i-1].Key())
			}
			if d.Kind == Different && !slices.Equal(d.Fields, []string{"value"}) {
				t.Errorf("%v differs in %q %s", d.Key(), d.Fields, d.Unknown)
			}
		}
		if !maps.Equal(got, want) || r.Missing+r.Extra+r.Different != len(want) || r.Equal() != (len(want) == 0) ||
			r.Equal() != (r.Server.Digest == r.Against.Digest) {
			t.Errorf("got %v in %+v, want %v", got, r, want)
		}
	})
}

// TestDifferencesAreBounded compares states of which every object is missing.
func TestDifferencesAreBounded(t *testing.T) {
	server := fakeSide{map[keepwatch.Key]string{}, maxPart}
	for i := range MaxDifferences + 7 {
		server.state[keepwatch.Key{Name: fmt.Sprintf("%05d", i)}] = "1"
	}
	r, err := compare(t.Context(), server, fakeSide{nil, 1}, func(context.Context) (keepwatch.Revision, error) {
		return 1, nil
	}, 1)
	if err != nil || r.Missing != MaxDifferences+7 || len(r.Differences) != MaxDifferences {
		t.Errorf("%d missing, %d differences, %v", r.Missing, len(r.Differences), err)
	}
}

// goneSide is a state whose objects cannot be read again.
type goneSide struct {
	fakeSide
	reads *int
}

func (s goneSide) content(context.Context, keepwatch.Key) (content, error) {
	*s.reads++
	return nil, keepwatch.Failed(keepwatch.Unreachable, "connection refused")
}

// A server that is unreachable after the comparison is not asked for each different object.
func TestServerGoesBehindTheComparison(t *testing.T) {
	server, against := fakeSide{map[keepwatch.Key]string{}, 4}, fakeSide{map[keepwatch.Key]string{}, 4}
	for i := range 20 {
		key := keepwatch.Key{Name: fmt.Sprintf("%02d", i)}
		server.state[key], against.state[key] = "1", "2"
	}
	reads := 0
	r, err := compare(t.Context(), server, goneSide{against, &reads}, func(context.Context) (keepwatch.Revision, error) {
		return 1, nil
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if reads != maxUnread || r.Different != 20 || r.Differences[19].Unknown == "" {
		t.Errorf("%d reads, the report is %+v", reads, r)
	}
}
