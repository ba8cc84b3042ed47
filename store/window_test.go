package store

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// windowTwin is a window as a slice.
type windowTwin []logEntry

func (w windowTwin) add(m logEntry, unheard int, o Options) windowTwin {
	w = append(slices.Clone(w), m)
	for len(w) > 1+unheard {
		bytes := int64(0)
		for _, m := range w {
			bytes += m.size(o)
		}
		if bytes <= o.WindowBytes && m.at-w[0].at <= o.WindowAge {
			break
		}
		w = w[1:]
	}
	return w
}

// since returns the entry, from the newest back, that begins at a cursor.
func (w windowTwin) since(c Cursor) (int, bool) {
	for i := len(w) - 1; i >= 0; i-- {
		m := w[i]
		switch {
		case m.from == c:
			return i, true
		case !m.isGap() && m.from.Epoch == c.Epoch && m.from.Revision < c.Revision && c.Revision < m.to.Revision:
			return i, true
		}
	}
	return 0, false
}

// oldest walks back over the batches of the epoch.
func (w windowTwin) oldest(now Cursor) keepwatch.Revision {
	for i := len(w) - 1; i >= 0 && !w[i].isGap() && w[i].from.Epoch == now.Epoch; i-- {
		now = w[i].from
	}
	return now.Revision
}

// windowRun feeds a window and its twin the same log entries.
type windowRun struct {
	options Options
	window  window
	twin    windowTwin
	now     Cursor
	at      time.Duration
	unheard int // of the last add
}

func newWindowRun() *windowRun {
	return &windowRun{
		options: Options{WindowBytes: 20 * logEntryBytes, WindowAge: time.Minute}.withDefaults(),
		now:     Cursor{Revision: 10},
	}
}

// add adds the next log entry: a batch, a gap or a rewind.
func (r *windowRun) add(kind, ahead, changes, unheard int, pause time.Duration) {
	m := logEntry{from: r.now, at: r.at + pause}
	m.to = Cursor{r.now.Epoch, r.now.Revision + keepwatch.Revision(ahead) + 1}
	var made []keepwatch.Change
	for range changes {
		made = append(made, add(thingAt("a", m.to.Revision)))
	}
	switch kind % 4 {
	case 0:
		m.delivery = keepwatch.Gap{From: m.from.Revision, To: m.to.Revision, Changes: made}
	case 1:
		m.to = Cursor{r.now.Epoch + 1, keepwatch.Revision(max(1, int(r.now.Revision)-ahead))}
		m.delivery = keepwatch.Gap{From: m.from.Revision, To: m.to.Revision, Reason: keepwatch.GapRewind, Changes: made}
	default:
		m.delivery = keepwatch.Batch{From: m.from.Revision, To: m.to.Revision, Changes: made}
	}
	r.now, r.at = m.to, m.at
	r.window, r.twin = r.window.add(m, unheard, r.options), r.twin.add(m, unheard, r.options)
	r.unheard = unheard
}

// check compares the window with its twin for every cursor there could be.
func (r *windowRun) check(t fataler) {
	t.Helper()
	if r.window.len() != len(r.twin) {
		t.Fatalf("%d log entries, want %d", r.window.len(), len(r.twin))
	}
	if r.window.bytes > r.options.WindowBytes && r.window.len() > 1+r.unheard {
		t.Fatalf("%d bytes in %d log entries, %d are allowed", r.window.bytes, r.window.len(), r.options.WindowBytes)
	}
	top := r.now.Revision
	for _, m := range r.twin {
		top = max(top, m.from.Revision, m.to.Revision)
	}
	for epoch := uint64(0); epoch <= r.now.Epoch+1; epoch++ {
		for revision := keepwatch.Revision(0); revision <= top+2; revision++ {
			c := Cursor{epoch, revision}
			got, ok := r.window.since(c)
			want, wantOK := r.twin.since(c)
			if ok != wantOK || ok && got != want {
				t.Fatalf("since %v: %d, %v; want %d, %v of %v", c, got, ok, want, wantOK, r.twin)
			}
		}
	}
	if got, want := r.window.oldest(r.now), r.twin.oldest(r.now); got != want {
		t.Fatalf("oldest is %d, want %d of %v", got, want, r.twin)
	}
}

func TestWindowIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newWindowRun()
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				r.add(rapid.IntRange(0, 11).Draw(t, "kind"), rapid.IntRange(0, 4).Draw(t, "ahead"),
					rapid.IntRange(0, 3).Draw(t, "changes"), max(0, rapid.IntRange(-9, 9).Draw(t, "unheard")),
					time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds"))*time.Second)
			},
			"": func(t *rapid.T) { r.check(t) },
		})
	})
}

func FuzzWindowAgainstSlice(f *testing.F) {
	f.Add([]byte{3, 2, 1, 0, 0, 7, 9, 200, 255, 3})
	f.Add([]byte("batches, gaps and rewinds"))
	f.Fuzz(func(t *testing.T, script []byte) {
		r := newWindowRun()
		for i := 0; i+1 < len(script) && i < 200; i += 2 {
			a, b := int(script[i]), int(script[i+1])
			r.add(a, a>>2%8, a>>5, b>>5, time.Duration(b%32)*time.Second)
			if i%16 == 0 {
				r.check(t)
			}
		}
		r.check(t)
	})
}

// A bookmark carries no object; a source that sends nothing else must not make
// the window grow without end.
func TestWindowCountsBookmarks(t *testing.T) {
	s := listed(t, Options{WindowBytes: 10 * logEntryBytes}, 1)
	for r := range keepwatch.Revision(100) {
		apply(t, s, r+2)
	}
	if n := s.view.Load().window.len(); n != 10 {
		t.Fatalf("%d bookmarks in a window for 10", n)
	}
}

func TestWindowAge(t *testing.T) {
	var w window
	o := Options{WindowAge: time.Minute}.withDefaults()
	for i := range 5 {
		from := Cursor{Revision: keepwatch.Revision(i + 1)}
		to := Cursor{Revision: keepwatch.Revision(i + 2)}
		w = w.add(logEntry{delivery: batch(from.Revision, to.Revision), from: from, to: to,
			at: time.Duration(i) * 20 * time.Second}, 0, o)
	}
	if oldest := w.oldest(Cursor{Revision: 6}); oldest != 2 || w.len() != 4 {
		t.Fatalf("%d log entries since %d, want those of the last minute", w.len(), oldest)
	}
}

func TestWindowRetainsTheNewestOfAnySize(t *testing.T) {
	s := listed(t, Options{WindowBytes: 1, Size: func(keepwatch.Object) int { return 1000 }}, 1)
	w := s.Watch(s.Snapshot().Cursor(), Filter{})
	for r := keepwatch.Revision(2); r < 10; r++ {
		apply(t, s, r, add(thingAt(string(rune('a'+r)), r)))
		if d := poll(t, w); len(d) != 1 {
			t.Fatalf("got %q", lines(d...))
		} else if _, exact := d[0].(keepwatch.Batch); !exact {
			t.Fatalf("a consumer without lag received %q", lines(d...))
		}
	}
}
