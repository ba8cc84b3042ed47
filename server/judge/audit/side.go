package audit

import (
	"context"
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// side is one of the two states.
type side interface {
	// String describes the state in messages and in the report.
	fmt.Stringer
	// read reads the state at a revision, or the newest one for zero, and calls emit with its
	// parts, which it does not change afterwards. It returns emit's error, or its own.
	read(ctx context.Context, revision keepwatch.Revision, emit func(part) error) error
	// content returns the content of an object in the state that was read last, nil if it is
	// not there.
	content(ctx context.Context, key keepwatch.Key) (content, error)
}

// part is a part of a state.
type part struct {
	objects    []*object
	unreadable []error // of the objects that are skipped
}

// maxPart bounds the objects of a part that is not a page.
const maxPart = 500

// sequence is the objects of a side, one by one. Invariant: their keys rise.
type sequence struct {
	name    string
	parts   <-chan part
	current []*object
	last    *object
	summary Summary
	digest  digester
}

// readAhead reads a side into a sequence. At most one part waits to be merged while the next one
// is read. The caller runs the returned function, which ends when the side was read, or with
// ctx.
func readAhead(ctx context.Context, s side, revision keepwatch.Revision) (*sequence, func() error) {
	parts := make(chan part)
	return &sequence{name: s.String(), parts: parts, digest: newDigester()}, func() error {
		defer close(parts)
		return s.read(ctx, revision, func(p part) error {
			select {
			case parts <- p:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
}

// next returns the next object, nil at the end.
func (s *sequence) next() (*object, error) {
	for len(s.current) == 0 {
		p, ok := <-s.parts
		if !ok {
			return nil, nil
		}
		s.current = p.objects
		s.addUnreadable(p.unreadable)
	}
	o := s.current[0]
	s.current = s.current[1:]
	if s.last != nil && s.last.key.Compare(o.key) >= 0 {
		return nil, fmt.Errorf(
			"%s lists %v behind %v: its objects are not in the order of keys, so that they cannot be compared", s.name, o.key,
			s.last.key)
	}
	s.last = o
	s.summary.Objects++
	s.digest.add(o)
	return o, nil
}

func (s *sequence) addUnreadable(errs []error) {
	s.summary.Unreadable += len(errs)
	for _, err := range errs {
		if len(s.summary.Reasons) < MaxReasons {
			s.summary.Reasons = append(s.summary.Reasons, err.Error())
		}
	}
}

// finish returns the summary of a sequence that was read to its end.
func (s *sequence) finish() Summary {
	s.summary.Name, s.summary.Digest = s.name, s.digest.String()
	return s.summary
}
