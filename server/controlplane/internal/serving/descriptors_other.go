//go:build !unix

package serving

// descriptorLimit reports that the limit is unknown.
func descriptorLimit() (uint64, bool) { return 0, false }
