package history

import (
	"iter"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Retained returns the resources of streams whose states are not retained for ever, each once, and for how long they
// are: as of says, or otherwise all.
func Retained(streams []sink.Status, all time.Duration, of map[string]time.Duration) iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		last := ""
		for _, s := range streams { // they are in the order of resources
			resource := s.ID.Resource
			if resource == last {
				continue
			}
			last = resource
			span, given := of[resource]
			if !given {
				span = all
			}
			if span > 0 && !yield(resource, span) {
				return
			}
		}
	}
}
