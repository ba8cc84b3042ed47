// Package watchhistory has the value of the flag --watch-history, which bounds the history of each
// resource.
package watchhistory

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keepwatch/keepwatch/internal/bytesize"
)

// Usage describes the flag in the help.
const Usage = "size and age of the history of each resource; a watch within it receives every event, a watch behind it the difference (default 64Mi,15m)"

// History is a size, an age, or both, as in 64Mi,15m. A zero field means the default. It is a pflag.Value.
type History struct {
	Bytes int64
	Age   time.Duration
}

// String returns the value in the form of the flag; empty for the default.
func (h *History) String() string {
	var parts []string
	if h.Bytes > 0 {
		parts = append(parts, resource.NewQuantity(h.Bytes, resource.BinarySI).String())
	}
	if h.Age > 0 {
		parts = append(parts, h.Age.String())
	}
	return strings.Join(parts, ",")
}

// Type returns the name of the value in the help.
func (*History) Type() string { return "size,age" }

// Set parses the flag.
func (h *History) Set(text string) error {
	var out History
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		age, noAge := time.ParseDuration(part)
		size, noSize := bytesize.Parse(part)
		switch {
		case noAge == nil && age > 0 && out.Age == 0:
			out.Age = age
		case noAge != nil && noSize == nil && out.Bytes == 0:
			out.Bytes = size
		default:
			return fmt.Errorf("%q is not a size or an age above zero: give at most one of each, as in 64Mi,15m", part)
		}
	}
	*h = out
	return nil
}
