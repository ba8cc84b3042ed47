package history

import (
	"errors"
	"testing"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestGaps reads the gaps of each state once, also after an error.
func TestGaps(t *testing.T) {
	var gaps Gaps
	reads := 0
	failed := errors.New("failed")
	get := func(state GapsState, fail error) ([]sink.StoredGap, error) {
		return gaps.Get(state, func() ([]sink.StoredGap, error) {
			reads++
			return []sink.StoredGap{{To: 1}}, fail
		})
	}
	if _, err := get(GapsState{}, failed); err != failed {
		t.Errorf("an error of the reader: %v", err)
	}
	first, err := get(GapsState{}, nil)
	again, err2 := get(GapsState{}, failed)
	if err != nil || err2 != nil || reads != 2 || &first[0] != &again[0] {
		t.Errorf("%d reads, %v, %v", reads, err, err2)
	}
	for i, state := range []GapsState{{Count: 1}, {Count: 1, Last: 1}, {Count: 1, Last: 1, Ended: 1}, {From: 2},
		{From: 2, To: 3}} {
		if _, err := get(state, nil); err != nil || reads != i+3 {
			t.Errorf("%+v: %d reads, %v", state, reads, err)
		}
	}
}
