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

// Whatever is ready or has to be made, in whatever order that ends, the parts come in order, up to
// the first error or as many as are wanted; no more work at a time than there are encoders, and
// nobody works any more at the end.
func TestPartsAreInOrder(t *testing.T) {
	type part struct {
		ready, fails bool
		weight       int
	}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) part {
			return part{rapid.Bool().Draw(t, "ready"), rapid.IntRange(0, 30).Draw(t, "fails") == 0, rapid.IntRange(0, maxPendingBytes*2).Draw(t, "weight")}
		}), 0, 50).Draw(t, "parts")
		wanted := rapid.IntRange(1, 60).Draw(t, "wanted")
		encoders := rapid.IntRange(1, 3).Draw(t, "encoders")
		var working, begun atomic.Int64
		a := pipeline[int, int]{
			slots:  make(chan struct{}, encoders),
			size:   func(i int) int64 { return int64(parts[i].weight) },
			cached: func(i int) (int, bool) { return i, parts[i].ready },
			encode: func(i int) (int, error) {
				begun.Add(1)
				defer working.Add(-1)
				if n := working.Add(1); n > int64(encoders) {
					t.Errorf("%d work at a time", n)
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
			if fails := parts[got].fails && !parts[got].ready; fails != (err != nil) || err == nil && i != got {
				t.Fatalf("part %d: %d, %v", got, i, err)
			}
			got++
			if err != nil || got == wanted {
				break
			}
		}
		if n := working.Load(); n != 0 {
			t.Errorf("%d still work", n)
		}
		failed := slices.IndexFunc(parts, func(p part) bool { return p.fails && !p.ready })
		want := min(len(parts), wanted)
		if failed >= 0 {
			want = min(want, failed+1)
		}
		if got != want {
			t.Errorf("%d parts, want %d", got, want)
		}
	})
}

// While the client does not read, no more is made than the window, or than about as many bytes.
func TestPartsAreBounded(t *testing.T) {
	for weight, most := range map[int64]int64{0: int64(maxPending), maxPendingBytes / 2: 2, maxPendingBytes: 1, 100 * maxPendingBytes: 1} {
		synctest.Test(t, func(t *testing.T) {
			var begun atomic.Int64
			a := pipeline[int, int]{
				slots:  newEncoderSlots(),
				size:   func(int) int64 { return weight },
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
				if n := begun.Load() - sent; n > most {
					t.Errorf("of %d bytes each, %d are made ahead, want %d at most", weight, n, most)
				}
			}
			if sent != 100 {
				t.Errorf("%d parts", sent)
			}
		})
	}
}

// What panics where parts are made panics where they are sent, where the server recovers.
func TestPartsThatPanic(t *testing.T) {
	a := pipeline[int, int]{
		slots: newEncoderSlots(), size: func(int) int64 { return 0 }, cached: func(int) (int, bool) { return 0, false },
		encode: func(i int) (int, error) { panic(errGone) },
	}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, errGone) {
			t.Errorf("it panics with %v", err)
		}
		if len(a.slots) > 0 {
			t.Errorf("%d encoders are taken", len(a.slots))
		}
	}()
	for range a.run(slices.Values([]int{1, 2, 3})) {
		t.Error("a part came")
	}
}

// The first lists behind a start, of objects that nobody has read yet, are what they always are,
// for several who ask at once.
func TestFirstLists(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		before := newRig(t, k, options{})
		for i := range 100 {
			before.create("large", fmt.Sprintf("o%03d", i), withLabel("tier", fmt.Sprint(i%2)), withNote(fmt.Sprint(i, strings.Repeat("<é>", 300*(i%5)))))
		}
		for _, f := range append(allEncodings, tableJSON) {
			if k.dynamic && f == objectProtobuf {
				continue // there is none
			}
			for _, encoding := range []string{"identity", "gzip"} {
				r := newRig(t, k, options{prefix: before.prefix})
				var asking sync.WaitGroup
				var bodies [2][]byte
				for i := range bodies {
					asking.Go(func() {
						q := must(http.NewRequest(http.MethodGet, r.server.URL+r.path(""), nil))(t)
						q.Header = accept(accepted(f, asList), "Accept-Encoding", encoding)
						client := http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
						answer := must(client.Do(q))(t)
						defer answer.Body.Close()
						bodies[i] = unzipped(t, answer, must(io.ReadAll(answer.Body))(t))
					})
				}
				asking.Wait()
				want := r.expected("", predicate(labels.Everything(), fields.Everything()), f)
				for _, body := range bodies {
					expectBytes(t, fmt.Sprint(k.gvk.Kind, " in form ", f, ", ", encoding), body, want)
				}
				if passed := r.delegated.Load(); passed > 0 {
					t.Errorf("%d were passed on", passed)
				}
				r.stop()
			}
		}
	}
}
