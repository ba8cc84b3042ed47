package audit

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// ShortWaits shortens the waits between attempts until the end of the test.
func ShortWaits(t *testing.T) {
	before := waits
	waits = backoff.Exponential{First: time.Millisecond, Max: 10 * time.Millisecond}
	t.Cleanup(func() { waits = before })
}
