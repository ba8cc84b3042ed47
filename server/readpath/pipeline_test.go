package readpath

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// Whichever parts are cached, and in whatever order the others are encoded, run returns them in order,
// up to the first error or the number that the caller wants. No more parts are encoded at the same time
// than there are slots, and none when run has returned.
func TestPartsAreInOrder(t *testing.T) {
	type part struct {
		cached, fails bool
		size          int
	}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) part {
			return part{rapid.Bool().Draw(t, "cached"), rapid.IntRange(0, 30).Draw(t, "fails") == 0,
				rapid.IntRange(0, maxPendingBytes*2).Draw(t, "size")}
		}), 0, 50).Draw(t, "parts")
		wanted := rapid.IntRange(1, 60).Draw(t, "wanted")
		slots := rapid.IntRange(1, 3).Draw(t, "slots")
		var working, begun atomic.Int64
		a := pipeline[int, int]{
			slots:  make(chan struct{}, slots),
			size:   func(i int) int64 { return int64(parts[i].size) },
			cached: func(i int) (int, bool) { return i, parts[i].cached },
			encode: func(i int) (int, error) {
				begun.Add(1)
				defer working.Add(-1)
				if n := working.Add(1); n > int64(slots) {
					t.Errorf("%d parts are encoded at the same time", n)
				}
				if parts[i].fails {
					return 0, errGone
				}
				return i, nil
			},
		}
		numbers := func(yield func(int) bool) {
			for i := range parts {
				if !yield(i) {
					return
				}
			}
		}
		got := 0
		for i, err := range a.run(numbers) {
			if fails := parts[got].fails && !parts[got].cached; fails != (err != nil) || err == nil && i != got {
				t.Fatalf("part %d: %d, %v", got, i, err)
			}
			got++
			if err != nil || got == wanted {
				break
			}
		}
		if n := working.Load(); n != 0 {
			t.Errorf("%d parts are still being encoded", n)
		}
		failed := slices.IndexFunc(parts, func(p part) bool { return p.fails && !p.cached })
		want := min(len(parts), wanted)
		if failed >= 0 {
			want = min(want, failed+1)
		}
		if got != want {
			t.Errorf("%d parts, want %d", got, want)
		}
	})
}

// While the client does not read, the encoded parts are bounded by number and by size.
func TestPartsAreBounded(t *testing.T) {
	for size, limit := range map[int64]int64{0: int64(maxPending), maxPendingBytes / 2: 2, maxPendingBytes: 1,
		100 * maxPendingBytes: 1} {
		synctest.Test(t, func(t *testing.T) {
			var begun atomic.Int64
			a := pipeline[int, int]{
				slots:  newEncoderSlots(),
				size:   func(int) int64 { return size },
				cached: func(int) (int, bool) { return 0, false },
				encode: func(i int) (int, error) { begun.Add(1); return i, nil },
			}
			sent := int64(0)
			for range a.run(func(yield func(int) bool) {
				for i := range 100 {
					if !yield(i) {
						return
					}
				}
			}) {
				synctest.Wait() // the client reads nothing
				sent++
				if n := begun.Load() - sent; n > limit {
					t.Errorf("of %d bytes each, %d are encoded ahead, want %d at most", size, n, limit)
				}
			}
			if sent != 100 {
				t.Errorf("%d parts", sent)
			}
		})
	}
}

// A panic of encode becomes a panic of run, from which the server recovers.
func TestPartsThatPanic(t *testing.T) {
	a := pipeline[int, int]{
		slots: newEncoderSlots(), size: func(int) int64 { return 0 }, cached: func(int) (int, bool) { return 0, false },
		encode: func(i int) (int, error) { panic(errGone) },
	}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, errGone) {
			t.Errorf("the panic is %v", err)
		}
		if len(a.slots) > 0 {
			t.Errorf("%d slots are in use", len(a.slots))
		}
	}()
	for range a.run(slices.Values([]int{1, 2, 3})) {
		t.Error("run returned a part")
	}
}

// The first lists after a start, of objects that no client has read yet, equal the API server's, also if
// several clients request them at the same time.
func TestFirstLists(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		before := newRig(t, k, options{})
		for i := range 100 {
			before.create("large", fmt.Sprintf("o%03d", i), withLabel("tier", fmt.Sprint(i%2)),
				withNote(fmt.Sprint(i, strings.Repeat("<é>", 300*(i%5)))))
		}
		for _, f := range append(allEncodings, tableJSON) {
			if k.dynamic && f == objectProtobuf {
				continue // custom resources have none
			}
			for _, encoding := range []string{"identity", "gzip"} {
				r := newRig(t, k, options{db: before.db})
				var clients sync.WaitGroup
				var bodies [2][]byte
				for i := range bodies {
					clients.Go(func() {
						q := must(http.NewRequest(http.MethodGet, r.server().URL+r.path(""), nil))(t)
						q.Header = accept(accepted(f, asList), "Accept-Encoding", encoding)
						client := http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
						answer := must(client.Do(q))(t)
						defer answer.Body.Close()
						bodies[i] = unzipped(t, answer, must(io.ReadAll(answer.Body))(t))
					})
				}
				clients.Wait()
				want := r.expected("", predicate(labels.Everything(), fields.Everything()), f)
				for _, body := range bodies {
					expectBytes(t, fmt.Sprint(k.gvk.Kind, " in encoding ", f, ", ", encoding), body, want)
				}
				if delegated := r.delegated.Load(); delegated > 0 {
					t.Errorf("%d requests were delegated", delegated)
				}
				r.stop()
			}
		}
	}
}
