package history

import (
	"fmt"
	"strings"
	"testing"
)

// An error lists a few types, and says how many it leaves out.
func TestOrList(t *testing.T) {
	var types []string
	for i := range 55 {
		types = append(types, fmt.Sprint("type", i))
	}
	for _, tt := range []struct {
		texts []string
		want  string
	}{
		{nil, "nothing"},
		{types[:2], "type0, type1"},
		{types[:maxListed+1], strings.Join(types[:maxListed+1], ", ")},
		{types, strings.Join(types[:maxListed], ", ") + ", and 43 more, which 'keepwatch sync status' lists"},
	} {
		if got := orList(tt.texts); got != tt.want {
			t.Errorf("%d texts: %q, want %q", len(tt.texts), got, tt.want)
		}
	}
}
