package sim

import (
	"bufio"
	"fmt"
	"strings"
)

// Decision is one thing that an actor decided: at the N-th time that it came to
// a point it did something else than nothing.
type Decision struct {
	Actor  string
	Point  Point
	N      int
	Choice string
	// Arg shapes the choice: how long, how many, which. Every choice takes any.
	Arg uint8
}

func (d Decision) String() string {
	return fmt.Sprintf("%s %s %d %s %d", d.Actor, d.Point, d.N, d.Choice, d.Arg)
}

// place is where a decision belongs.
type place struct {
	actor string
	point Point
	n     int
}

func (d Decision) place() place { return place{d.Actor, d.Point, d.N} }

// Script is all that happens in a schedule. Where it has nothing, nothing
// happens, so that a decision can be taken out and the rest stays a script.
type Script []Decision

// String has a line for each decision.
func (s Script) String() string {
	var b strings.Builder
	for _, d := range s {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}

// ParseScript reads what String writes.
func ParseScript(text string) (Script, error) {
	var s Script
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var d Decision
		if _, err := fmt.Sscan(line, &d.Actor, &d.Point, &d.N, &d.Choice, &d.Arg); err != nil {
			return nil, fmt.Errorf("script line %q: %w", line, err)
		}
		s = append(s, d)
	}
	return s, nil
}
