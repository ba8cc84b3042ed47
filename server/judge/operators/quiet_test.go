package operators

import (
	"testing"
	"time"
)

// looked is quiet after looks at an operator for some time, every pause. It is like it is on a machine that has little
// time for the judge if pause is long.
func looked(q *quiet, began time.Time, during, pause time.Duration, does func(since time.Duration) activity) {
	for since := time.Duration(0); since <= during; since += pause {
		q.look(began.Add(since), does(since), 0)
	}
}

// TestQuiet checks that an operator that asks now and then is quiet, and one that asks often is not, however often the
// judge looks.
func TestQuiet(t *testing.T) {
	for _, pause := range []time.Duration{pollPause, 5 * pollPause, 20 * pollPause} {
		for each, want := range map[time.Duration]bool{300 * time.Millisecond: true, 100 * time.Millisecond: false} {
			q := quiet{least: time.Second}
			longest := time.Duration(0)
			looked(&q, time.Now(), 2*time.Minute, pause, func(since time.Duration) activity {
				longest = max(longest, q.time)
				return activity{reads: int(since / each)}
			})
			if is := longest >= longQuiet*q.least; is != want {
				t.Errorf("with a read every %v, and a look every %v: quiet for %v", each, pause, longest)
			}
		}
	}
}

// TestQuietOfHeldOperator checks that no time passes in which the operator cannot run, unless it never does.
func TestQuietOfHeldOperator(t *testing.T) {
	began, idle := time.Now(), func(time.Duration) activity { return activity{} }
	for held, want := range map[float64]time.Duration{0: 10 * time.Second, 0.5: 5 * time.Second, 1: 0} {
		q := quiet{least: time.Second, held: func() float64 { return held }}
		q.begin()
		looked(&q, began, 10*time.Second, pollPause, idle)
		if off := (q.time - want).Abs(); off > checkPause || q.time != q.whole {
			t.Errorf("held for %v of 10s: quiet for %v, %v passed", held, q.time, q.whole)
		}
	}
	now := 0.0
	q := quiet{least: time.Second, held: func() float64 { return now }}
	q.begin()
	looked(&q, began, q.least-pollPause, pollPause, idle)
	now = 1 // since the last look
	if due := q.look(began.Add(q.least), activity{}, 0); due || q.time >= q.least {
		t.Errorf("it is quiet after %v, and held; due: %v", q.time, due)
	}
	looked(&q, began, 2*maxHeld, 2*pollPause, idle)
	if q.time < q.least {
		t.Error("an operator that is stopped for ever is never quiet")
	}
}
