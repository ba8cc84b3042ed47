package reflector

import "github.com/keepwatch/keepwatch"

// The contract of targets lies in the root package, so that a store needs no
// reflector.
type (
	Target      = keepwatch.Target
	Relist      = keepwatch.Relist
	Replacement = keepwatch.Replacement
)
