package fleet

import (
	"encoding/json"
	"testing"
)

// The documentation gives the sizes of both pods.
func TestSizes(t *testing.T) {
	small := Pod(1)
	Shrink(small)
	for name, c := range map[string]struct {
		pod         any
		least, most int
	}{"a pod": {Pod(1), 8500, 9100}, "a small one": {small, 1400, 1600}} {
		text, err := json.Marshal(c.pod)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(text); n < c.least || n > c.most {
			t.Errorf("%s has %d bytes of JSON, not %d to %d", name, n, c.least, c.most)
		}
	}
}
