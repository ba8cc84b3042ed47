package sink_test

import (
	"fmt"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Two streams are complete at the lower one of their cursors, because the history of neither begins
// above it.
func ExampleCutOf() {
	pods := sink.Progress{Since: 5, Cursor: 12}
	nodes := sink.Progress{Since: 7, Cursor: 9}
	cut, ok := sink.CutOf([]sink.Progress{pods, nodes})
	fmt.Println(cut.Revision, ok)
	// Output: 9 true
}
