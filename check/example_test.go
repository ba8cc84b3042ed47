package check_test

import (
	"fmt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// A consumer receives an update, but not the deletion that follows it.
func ExampleJudge() {
	pod := func(revision keepwatch.Revision) keepwatch.Object {
		return &object{name: "web", uid: "7f3a", revision: revision}
	}
	history := check.History{Epochs: []check.Epoch{{Writes: []check.Write{
		{Revision: 4, Key: keepwatch.Key{Name: "web"}, Object: pod(4)},
		{Revision: 6, Key: keepwatch.Key{Name: "web"}, Object: pod(6)},
		{Revision: 7, Key: keepwatch.Key{Name: "web"}}, // a delete
	}}}}

	violations := check.Judge(history, nil, check.Transcript{Records: []check.Record{
		check.Received{Delivery: keepwatch.Gap{From: 0, To: 5, Changes: []keepwatch.Change{
			{Type: keepwatch.Added, Revision: 4, Object: pod(4)},
		}}},
		check.Received{Delivery: keepwatch.Batch{From: 5, To: 8, Changes: []keepwatch.Change{
			{Type: keepwatch.Modified, Revision: 6, Object: pod(6)},
		}}},
	}})
	for _, v := range violations {
		fmt.Println(v)
	}
	// Output:
	// record 1 breaks P2 (completeness): the history requires a batch up to 7, the newest revision, at most; the consumer received a batch up to 8
	// record 1 breaks P6 (deletes): the history requires DELETED web at 7 (7f3a at 6); the consumer received nothing
}
