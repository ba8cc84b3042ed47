package matrix

import "github.com/keepwatch/keepwatch/test/matrix/clients"

// The marks of a cell.
const (
	complete   = "✓" // the state is right, and the user missed nothing
	incomplete = "~" // the state is right, but not all that the user saw before
	failed     = "✗" // the client is wrong, hung, or died
)

// mark sums the cell up.
func (r Result) mark() string {
	switch {
	case r.Outcome != Right:
		return failed
	case r.View == clients.Events && (r.LostDeletes > 0 || r.Duplicates > 0 || r.Violations > 0 ||
		r.LostIntermediate > 0 && !r.Hidden):
		return incomplete
	}
	return complete
}
