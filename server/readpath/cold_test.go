package readpath

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A sweep drops what was neither used nor added since the last one, whatever happens between, in any batches. The twin
// remembers when that was for each encoding.
func TestSweepDropsTheCold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := NewBudget(1 << 30) // nothing is evicted
		budget.coldAfter = 1 << 50
		c, key := &budget.itemEncodings, encodingKey{reader: 1}
		type known struct {
			*handle
			added   int // the number of sweeps when it was added
			touched int // and when it was used or added last; the first sweep after its addition does not see its use
			gone    bool
		}
		var all []*known
		sweeps := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					k := &known{handle: budget.newHandle(), added: sweeps, touched: sweeps}
					if again := rapid.Bool().Draw(t, "recurring"); again {
						k.touched++
					}
					k.cache(key, []byte{}, 1, useOf(k.touched > sweeps))
					all = append(all, k)
				}
			},
			"use": func(t *rapid.T) {
				for _, k := range all {
					if rapid.Bool().Draw(t, "used") && k.find(key) != nil {
						k.touched = max(sweeps, k.added+1)
					}
				}
			},
			"drop": func(t *rapid.T) {
				if len(all) > 0 {
					k := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
					k.drop()
					k.gone = true
				}
			},
			"sweep": func(t *rapid.T) {
				batch := rapid.IntRange(1, 7).Draw(t, "batch")
				for !c.sweepSome(batch) {
				}
				for _, k := range all {
					k.gone = k.gone || k.touched < sweeps
				}
				sweeps++
			},
			"": func(t *rapid.T) {
				for i, k := range all {
					if cached := k.lookup(key) != nil; cached == k.gone {
						t.Fatalf("after %d sweeps %d of %d, touched in %d, is cached: %v", sweeps, i, len(all), k.touched, cached)
					}
				}
			},
		})
	})
}

// What is used stays, what is not leaves within three intervals, and then there is no timer.
func TestColdEncodingsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(1 << 30)
		hot, cold, event, key := budget.newHandle(), budget.newHandle(), budget.newHandle(), encodingKey{reader: 1}
		hot.cache(key, []byte{}, 1, listRead)
		for i := range 3 * sweepBatch {
			cold.cache(encodingKey{reader: uint64(i)}, []byte{}, 1, listRead)
		}
		event.cacheEvent(key, []byte{1})
		for range 4 {
			time.Sleep(coldAfter)
			synctest.Wait()
			if hot.find(key) == nil {
				t.Fatal("an encoding that is used has left")
			}
		}
		if cold.find(key) != nil || event.find(key) != nil {
			t.Error("encodings that are not used are cached")
		}
		time.Sleep(3 * coldAfter)
		synctest.Wait()
		if budget.Bytes() != 0 || budget.sweeping != nil {
			t.Errorf("%d bytes are left", budget.Bytes())
		}
		hot.cache(key, []byte{}, 1, listRead)
		time.Sleep(3 * coldAfter)
		synctest.Wait()
		if budget.Bytes() != 0 {
			t.Errorf("%d bytes are left later", budget.Bytes())
		}
	})
}
