package check_test

import (
	"fmt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// A consumer is told of an update, but not of the delete behind it.
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
	// P2 broken at record 1: want a revision up to 7, the newest; got one to 8
	// P6 broken at record 1: want DELETED web at 7 (7f3a at 6); got nothing
}
