package rawwatch

import (
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// mutants returns a transcript as it would be if the server had made a mistake in its middle: an event that is dropped,
// a deletion that is sent again, a bookmark that is ahead of the next event. There is none of which the transcript has
// no place, and none for most watchers.
func mutants(t check.Transcript, watcher int) map[string]check.Transcript {
	all := map[string]check.Transcript{}
	if watcher%5 != 0 {
		return all
	}
	add := func(name string, at int, batches ...keepwatch.Batch) {
		records := slices.Clone(t.Records[:at])
		for _, b := range batches {
			records = append(records, check.Received{Delivery: b, At: t.Records[at].(check.Received).At})
		}
		t := t
		t.Records = append(records, t.Records[at+1:]...)
		all[name] = t
	}
	for at := len(t.Records) / 2; at < len(t.Records); at++ {
		received, ok := t.Records[at].(check.Received)
		batch, isBatch := received.Delivery.(keepwatch.Batch)
		if !ok || !isBatch || len(batch.Changes) == 0 {
			continue
		}
		last := len(batch.Changes) - 1
		if _, done := all["a dropped event"]; !done {
			dropped := batch
			dropped.Changes = batch.Changes[:last]
			add("a dropped event", at, dropped)
			ahead := keepwatch.Batch{From: batch.From, To: batch.To}
			behind := keepwatch.Batch{From: batch.To, To: batch.To, Changes: batch.Changes}
			add("a bookmark ahead of its event", at, ahead, behind)
		}
		if _, done := all["a repeated deletion"]; !done && batch.Changes[last].Type == keepwatch.Deleted {
			again := keepwatch.Batch{From: batch.To, To: batch.To, Changes: batch.Changes[last:]}
			add("a repeated deletion", at, batch, again)
		}
	}
	return all
}
