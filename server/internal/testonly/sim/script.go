package sim

import (
	"bufio"
	"fmt"
	"strings"
)

// Decision is an actor's N-th decision at a point, if it differs from the default.
type Decision struct {
	Actor  string
	Point  Point
	N      int
	Choice string
	// Arg is a parameter of the choice: how long, how many, which. Every value is valid.
	Arg uint8
}

func (d Decision) String() string {
	return fmt.Sprintf("%s %s %d %s %d", d.Actor, d.Point, d.N, d.Choice, d.Arg)
}

// decisionKey identifies a decision.
type decisionKey struct {
	actor string
	point Point
	n     int
}

func (d Decision) key() decisionKey { return decisionKey{d.Actor, d.Point, d.N} }

// Script is a schedule's decisions. The others are the default, so that a script without one
// of its decisions is a script too.
type Script []Decision

// String returns a line for each decision.
func (s Script) String() string {
	var b strings.Builder
	for _, d := range s {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}

// ParseScript parses String's result.
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
