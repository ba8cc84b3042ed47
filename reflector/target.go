package reflector

import "github.com/keepwatch/keepwatch"

type (
	Target      = keepwatch.Target
	Relist      = keepwatch.Relist
	Replacement = keepwatch.Replacement
)
