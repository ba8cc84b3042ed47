package store

import (
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func contents(q queue[int]) []int {
	var all []int
	for i := range q.len() {
		all = append(all, q.at(i))
	}
	return all
}

func TestQueueViewsAreImmutable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type view struct {
			queue[int]
			twin []int
		}
		var now view
		var views []view
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					now.queue = now.push(next, int64(rapid.IntRange(0, 1000).Draw(t, "bytes")))
					now.twin = append(slices.Clone(now.twin), next)
					next++
				}
			},
			"drop": func(t *rapid.T) {
				for range rapid.IntRange(0, now.len()).Draw(t, "n") {
					now.queue, now.twin = now.drop(), now.twin[1:]
				}
			},
			"keep": func(*rapid.T) { views = append(views, now) },
			"": func(t *rapid.T) {
				bytes := int64(0)
				for _, item := range now.items {
					bytes += item.bytes
				}
				if bytes != now.bytes {
					t.Fatalf("%d bytes, want %d", now.bytes, bytes)
				}
				if now.dropped > now.len() || now.droppedBytes > now.bytes {
					t.Fatalf("%d items of %d bytes are dropped but retained, with %d of %d in the queue", now.dropped,
						now.droppedBytes, now.len(), now.bytes)
				}
				for _, v := range append(views, now) {
					if !slices.Equal(contents(v.queue), v.twin) {
						t.Fatalf("a view shows %v, want %v", contents(v.queue), v.twin)
					}
				}
			},
		})
	})
}

// Dropped items of a queue must become garbage by their size, and not only by their
// number.
func TestQueueFreesWhatItDrops(t *testing.T) {
	freed := make(chan struct{})
	var q queue[*[1 << 20]byte]
	func() {
		heavy := new([1 << 20]byte)
		runtime.AddCleanup(heavy, func(int) { close(freed) }, 0)
		q = q.push(heavy, 1<<20)
	}()
	for range 100 {
		q = q.push(nil, 1)
	}
	q = q.drop()
	for range 100 {
		runtime.GC()
		select {
		case <-freed:
			runtime.KeepAlive(&q)
			return
		default:
			runtime.Gosched()
		}
	}
	t.Fatalf("%d living items pin a dropped one", q.len())
}
