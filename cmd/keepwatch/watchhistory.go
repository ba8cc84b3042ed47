package main

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keepwatch/keepwatch/controlplane"
)

// watchHistory is the flag --watch-history: a size, an age, or both, as in 64Mi,15m.
type watchHistory struct{ *controlplane.WatchHistory }

// String returns the value in the form of the flag; empty for the default.
func (h watchHistory) String() string {
	var parts []string
	if h.WatchHistory != nil && h.Bytes > 0 {
		parts = append(parts, resource.NewQuantity(h.Bytes, resource.BinarySI).String())
	}
	if h.WatchHistory != nil && h.Age > 0 {
		parts = append(parts, h.Age.String())
	}
	return strings.Join(parts, ",")
}

// Type returns the name of the value in the help.
func (watchHistory) Type() string { return "size,age" }

// Set parses the flag.
func (h watchHistory) Set(text string) error {
	var out controlplane.WatchHistory
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		age, noAge := time.ParseDuration(part)
		size, noSize := resource.ParseQuantity(part)
		switch {
		case noAge == nil && age > 0 && out.Age == 0:
			out.Age = age
		case noAge != nil && noSize == nil && size.Value() > 0 && out.Bytes == 0:
			out.Bytes = size.Value()
		default:
			return fmt.Errorf("%q is not a size or an age above zero: give at most one of each, as in 64Mi,15m", part)
		}
	}
	*h.WatchHistory = out
	return nil
}
