package stream

import (
	"context"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// TestReplace passes a list to a stream that is at 10 and has delivered a.1@5 and b.1@7.
func TestReplace(t *testing.T) {
	expired := keepwatch.GapExpired
	tests := []struct {
		name    string
		reason  keepwatch.GapReason
		to      keepwatch.Revision
		objects []string
		want    string
	}{
		{"nothing changed", expired, 20, []string{"a.1@5", "b.1@7"}, "gap 10-20 expired, synced 20 #2"},
		{"all kinds of changes", expired, 20, []string{"b.1@12", "c.1@13"},
			"gap 10-20 expired, ~b.1@12, +c.1@13, -a.1@5 (20), synced 20 #2"},
		{"a new UID", keepwatch.GapDowntime, 20, []string{"a.2@15", "b.1@7"},
			"gap 10-20 downtime, -a.1@5 (20), +a.2@15, synced 20 #2"},
		{"the same object twice", expired, 20, []string{"c.1@13", "a.1@5", "b.1@7", "c.1@13"},
			"gap 10-20 expired, +c.1@13, synced 20 #3"},
		{"everything deleted, in order", expired, 20, nil, "gap 10-20 expired, -a.1@5 (20), -b.1@7 (20), synced 20 #0"},
		{"back in time", keepwatch.GapRewind, 6, []string{"a.1@4", "c.1@6"},
			"gap 10-6 rewind, ~a.1@4, +c.1@6, -b.1@7 (6), synced 6 #2"},
		{"back in time, and forward again", keepwatch.GapRewind, 10, []string{"a.1@9", "b.1@7"},
			"gap 10-10 rewind, ~a.1@9, synced 10 #2"},
	}
	for kind, state := range states(t) {
		for _, tt := range tests {
			t.Run(kind+"/"+tt.name, func(t *testing.T) {
				x := newTestStream(t, state(), Options{})
				x.list(keepwatch.Relist{}, 10, "a.1@5", "b.1@7")
				x.delivered()
				x.list(keepwatch.Relist{Reason: tt.reason, To: tt.to}, tt.to, tt.objects...)
				if got := x.delivered(); got != tt.want {
					t.Errorf("delivered %s\nwant %s", got, tt.want)
				}
				if x.Revision() != tt.to {
					t.Errorf("Revision is %d, want %d", x.Revision(), tt.to)
				}
				// The same list again has no difference.
				x.list(keepwatch.Relist{Reason: expired, To: tt.to + 1}, tt.to+1, tt.objects...)
				if got, want := x.delivered(), "gap"; got[:3] != want || len(got) > 40 {
					t.Errorf("the same list again was delivered as %s", got)
				}
			})
		}
	}
}

// putList begins a list and puts objects.
func (x *testStream) putList(relist keepwatch.Relist, objects ...string) keepwatch.Replacement {
	x.t.Helper()
	r, err := x.Replace(context.Background(), relist)
	if err != nil {
		x.t.Fatal(err)
	}
	if err := r.Put(context.Background(), things(objects...)); err != nil {
		x.t.Fatal(err)
	}
	return r
}

func TestDiscardedListStaysInTheIndex(t *testing.T) {
	for kind, state := range states(t) {
		t.Run(kind, func(t *testing.T) {
			x := newTestStream(t, state(), Options{})
			x.putList(keepwatch.Relist{}, "a.1@5", "b.1@7").Discard()
			if got, want := x.delivered(), "+a.1@5, +b.1@7"; got != want || x.Revision() != 0 {
				t.Errorf("delivered %s, want %s; Revision is %d", got, want, x.Revision())
			}
			x.list(keepwatch.Relist{}, 10, "b.1@9", "c.1@8")
			if got, want := x.delivered(), "~b.1@9, +c.1@8, -a.1@5 (10), synced 10 #2"; got != want {
				t.Errorf("delivered %s, want %s", got, want)
			}

			x.putList(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20}, "b.1@15", "d.1@16").Discard()
			if got, want := x.delivered(), "gap 10-20 expired, ~b.1@15, +d.1@16"; got != want {
				t.Errorf("delivered %s, want %s", got, want)
			}
			x.list(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 22}, 22, "b.1@15", "c.1@21")
			if got, want := x.delivered(), "gap 10-22 expired, ~c.1@21, -d.1@16 (22), synced 22 #2"; got != want {
				t.Errorf("delivered %s, want %s", got, want)
			}
			if _, err := x.Apply(context.Background(), batch(22, 23, "~c.1@23")); err != nil {
				t.Fatal(err)
			}
			if got, want := x.delivered(), "~c.1@23"; got != want {
				t.Errorf("delivered %s, want %s", got, want)
			}
		})
	}
}

// TestListBelowDelivered begins a list that is older than one that was delivered in part.
// It comes from a late replica, or from a source that was restored.
func TestListBelowDelivered(t *testing.T) {
	begin := func(t *testing.T) *testStream {
		x := newTestStream(t, InMemory(), Options{})
		x.list(keepwatch.Relist{}, 10, "a.1@5", "b.1@7")
		x.putList(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20}, "a.1@18", "c.1@19").Discard()
		x.delivered()
		late := keepwatch.Relist{Reason: keepwatch.GapExpired, To: 15}
		for range 2 {
			if _, err := x.Replace(context.Background(), late); kindOf(err) != keepwatch.StaleReplica {
				t.Fatalf("got %v, want StaleReplica", err)
			}
		}
		if got := x.delivered(); got != "" {
			t.Errorf("delivered %s", got)
		}
		return x
	}
	t.Run("late replica", func(t *testing.T) {
		x := begin(t)
		x.list(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 21}, 21, "a.1@18", "b.1@7", "c.1@19")
		if got, want := x.delivered(), "gap 10-21 expired, synced 21 #3"; got != want {
			t.Errorf("delivered %s, want %s", got, want)
		}
	})
	t.Run("restored source", func(t *testing.T) {
		x := begin(t)
		x.list(keepwatch.Relist{Reason: keepwatch.GapRewind, To: 15}, 15, "a.1@12", "b.1@7")
		if got, want := x.delivered(), "gap 10-15 rewind, ~a.1@12, -c.1@19 (15), synced 15 #2"; got != want {
			t.Errorf("delivered %s, want %s", got, want)
		}
	})
}

// TestListThatContradictsItself puts an older state of an object than was delivered, from
// a newer list.
func TestListThatContradictsItself(t *testing.T) {
	x := newTestStream(t, InMemory(), Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5", "b.1@7")
	x.delivered()
	relist := keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20}
	r, err := x.Replace(context.Background(), relist)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put(context.Background(), things("a.1@4")); kindOf(err) != keepwatch.Rewound {
		t.Fatalf("got %v, want Rewound", err)
	}
	r.Discard()
	if got, want := x.delivered(), "gap 10-20 expired"; got != want {
		t.Errorf("delivered %s, want %s", got, want)
	}
	x.list(keepwatch.Relist{Reason: keepwatch.GapRewind, To: 20}, 20, "a.1@4", "b.1@7")
	if got, want := x.delivered(), "gap 10-20 rewind, ~a.1@4, synced 20 #2"; got != want {
		t.Errorf("delivered %s, want %s", got, want)
	}
}

func TestStreamedListIsOnlyForTheFirst(t *testing.T) {
	x := newTestStream(t, InMemory(), Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	if _, err := x.Replace(context.Background(), keepwatch.Relist{}); kindOf(err) != keepwatch.StreamingListUnsupported {
		t.Errorf("got %v", err)
	}
}

// TestManyDeletions checks that many deletions are delivered in the order of keys.
func TestManyDeletions(t *testing.T) {
	for kind, state := range states(t) {
		t.Run(kind, func(t *testing.T) {
			x := newTestStream(t, state(), Options{})
			var objects []keepwatch.Object
			for i := range 3*deletionsPerDelivery + 1 {
				o := at("a.1@5")
				o.key.Name += string(rune('a'+i/26/26%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
				o.uid = keepwatch.UID(o.key.Name)
				objects = append(objects, o)
			}
			r := x.putList(keepwatch.Relist{})
			if err := r.Put(context.Background(), objects); err != nil {
				t.Fatal(err)
			}
			if err := r.Commit(context.Background(), 10); err != nil {
				t.Fatal(err)
			}
			x.lines.Reset()
			r = x.putList(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20})
			if err := r.Put(context.Background(), objects[7:8]); err != nil {
				t.Fatal(err)
			}
			if err := r.Commit(context.Background(), 20); err != nil {
				t.Fatal(err)
			}
			last, n := "", 0
			for text := range strings.Lines(x.lines.String()) {
				l, err := parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if l.Type != "DELETED" {
					continue
				}
				n++
				if name := l.Object.Metadata.Name; name <= last {
					t.Fatalf("%s behind %s", name, last)
				} else {
					last = name
				}
			}
			if n != len(objects)-1 || x.position.Count != 1 {
				t.Errorf("%d deletions, %d left", n, x.position.Count)
			}
		})
	}
}

// TestEnd ends streams whose source no longer has the resource.
func TestEnd(t *testing.T) {
	end := func(x *testStream, newest keepwatch.Revision) string {
		t.Helper()
		if err := x.End(context.Background(), newest, keepwatch.GapExpired); err != nil {
			t.Fatal(err)
		}
		return x.delivered()
	}
	for _, tt := range []struct {
		name   string
		before func(x *testStream)
		newest keepwatch.Revision
		want   string
	}{
		{"nothing was delivered", func(*testStream) {}, 20, ""},
		{"no objects", func(x *testStream) { x.list(keepwatch.Relist{}, 10) }, 20, ""},
		{"objects", func(x *testStream) { x.list(keepwatch.Relist{}, 10, "a.1@5", "b.1@7") }, 20,
			"gap 10-20 expired, -a.1@5 (20), -b.1@7 (20), synced 20 #0"},
		{"the newest revision is not known", func(x *testStream) { x.list(keepwatch.Relist{}, 10, "a.1@5") }, 1,
			"gap 10-10 expired, -a.1@5 (10), synced 10 #0"},
		{"within the first list", func(x *testStream) { x.putList(keepwatch.Relist{}, "a.1@5").Discard() }, 20,
			"-a.1@5 (20), synced 20 #0"},
		{"within a gap", func(x *testStream) {
			x.list(keepwatch.Relist{}, 10, "a.1@5")
			x.putList(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 15}, "b.1@12").Discard()
		}, 20, "gap 10-20 expired, -a.1@5 (20), -b.1@12 (20), synced 20 #0"},
		{"an empty gap", func(x *testStream) {
			x.list(keepwatch.Relist{}, 10)
			x.putList(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 15}).Discard()
		}, 20, "gap 10-20 expired, synced 20 #0"},
	} {
		for kind, state := range states(t) {
			t.Run(kind+"/"+tt.name, func(t *testing.T) {
				x := newTestStream(t, state(), Options{})
				tt.before(x)
				x.delivered()
				if got := end(x, tt.newest); got != tt.want {
					t.Errorf("delivered %s\nwant %s", got, tt.want)
				}
				if got := end(x, 30); got != "" {
					t.Errorf("the second end delivered %s", got)
				}
			})
		}
	}
}

// TestReturn lists resources that were ended and return with their objects, in another run. The ids are new each time.
func TestReturn(t *testing.T) {
	for kind, state := range states(t) {
		t.Run(kind, func(t *testing.T) {
			x := newTestStream(t, state(), Options{})
			restart := func() {
				t.Helper()
				if got := x.Revision(); got != 0 {
					t.Errorf("a watch would continue at %d", got)
				}
				x = newTestStream(t, x.state, Options{})
				if got := x.Revision(); got != 0 {
					t.Errorf("after a restart a watch would continue at %d", got)
				}
			}
			end := func(at keepwatch.Revision) {
				t.Helper()
				if err := x.End(context.Background(), at, keepwatch.GapExpired); err != nil {
					t.Fatal(err)
				}
			}
			step := func(want string) {
				t.Helper()
				if got := x.delivered(); got != want {
					t.Errorf("delivered %s\nwant %s", got, want)
				}
			}
			x.list(keepwatch.Relist{}, 10)
			step("synced 10 #0")
			end(11)
			step("")
			restart()
			x.list(keepwatch.Relist{}, 12, "a.1@5", "b.1@7")
			step("gap 10-12 expired, +a.1@5, +b.1@7, synced 12 #2")
			end(20)
			step("gap 12-20 expired, -a.1@5 (20), -b.1@7 (20), synced 20 #0")
			end(25)
			step("")
			restart()
			end(26)
			step("")
			x.list(keepwatch.Relist{}, 30, "a.1@5", "b.1@28", "c.1@29")
			step("gap 20-30 expired, +a.1@5/1, +b.1@28, +c.1@29, synced 30 #3")
			end(40)
			step("gap 30-40 expired, -a.1@5/1 (40), -b.1@28 (40), -c.1@29 (40), synced 40 #0")
			restart()
			x.list(keepwatch.Relist{}, 40, "a.1@5")
			step("gap 40-40 expired, +a.1@5/2, synced 40 #1")
			end(40) // nothing was written meanwhile
			x.list(keepwatch.Relist{}, 40, "a.1@5")
			step("gap 40-40 expired, -a.1@5/2 (40), synced 40 #0, gap 40-40 expired, +a.1@5/3, synced 40 #1")
		})
	}
}

// TestFoundAgain lists an object that an earlier list did not have, in the state that was delivered before.
func TestFoundAgain(t *testing.T) {
	x := newTestStream(t, InMemory(), Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5", "b.1@7")
	x.list(keepwatch.Relist{Reason: keepwatch.GapExpired}, 20, "b.1@7")
	x.list(keepwatch.Relist{Reason: keepwatch.GapExpired}, 30, "a.1@5", "b.1@7", "c.1@25")
	x.list(keepwatch.Relist{Reason: keepwatch.GapRewind}, 25, "c.1@24", "d.1@8")
	const want = "+a.1@5, +b.1@7, synced 10 #2, gap 10-20 expired, -a.1@5 (20), synced 20 #1, " +
		"gap 20-30 expired, +a.1@5/1, +c.1@25, synced 30 #3, " +
		"gap 30-25 rewind, ~c.1@24, +d.1@8, -a.1@5 (25), -b.1@7 (25), synced 25 #2"
	if got := x.delivered(); got != want {
		t.Errorf("delivered %s\nwant %s", got, want)
	}
}
