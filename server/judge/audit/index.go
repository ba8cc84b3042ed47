package audit

import (
	"context"
	"fmt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
)

// indexSide is the state of a stream.
type indexSide struct{ index *stream.Index }

func (s *indexSide) String() string { return s.index.Path() }

func (s *indexSide) read(_ context.Context, _ keepwatch.Revision, emit func(part) error) error {
	var p part
	err := s.index.Objects(func(o stream.Object) error {
		c, err := parseContent(o.Metadata(), false)
		if err != nil {
			return fmt.Errorf("%s: object %v: %w", s, o.Key(), err)
		}
		digested, err := newObject(o.Key(), o.UID(), o.Revision(), c)
		if err != nil {
			return fmt.Errorf("%s: object %v: %w", s, o.Key(), err)
		}
		if p.objects = append(p.objects, digested); len(p.objects) < maxPart {
			return nil
		}
		full := p
		p = part{}
		return emit(full)
	})
	if err != nil {
		return err
	}
	return emit(p)
}

func (s *indexSide) content(_ context.Context, key keepwatch.Key) (content, error) {
	o, ok, err := s.index.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	return parseContent(o.Metadata(), false)
}
