package readpath

import (
	"iter"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/storage"
	"github.com/keepwatch/keepwatch/store"
)

// outcome is a segment's block, or why there is none.
type outcome struct {
	block
	err error
}

// newBlocks makes the memos of compressed segments, one for each form.
func (s *Reader) newBlocks() {
	for f := range s.blocks {
		s.blocks[f] = store.NewMemo(func(segment store.Segment) outcome { return s.deflate(segment, form(f)) })
	}
}

// compressed is a segment's block, made once and kept with the segment.
func (s *Reader) compressed(segment store.Segment, f form) (block, error) {
	known := s.blocks[f].Of(segment)
	if known.err != nil { // an object could not be read: now it may be
		known = s.deflate(segment, f)
	}
	return known.block, known.err
}

func (s *Reader) deflate(segment store.Segment, f form) outcome {
	b, err := s.join(segment.All(), f)
	if err != nil {
		return outcome{err: err}
	}
	defer giveBuffer(b)
	return outcome{block: compress(b)}
}

// join puts objects' items together as they stand in a list. The result is to be
// given back.
func (s *Reader) join(objects iter.Seq[keepwatch.Object], f form) ([]byte, error) {
	e := envelope{between: comma, tagged: isProtobuf(f)}
	b, first := takeBuffer(), true
	for o := range objects {
		known, err := s.Storage.Read(o)
		if err != nil {
			return nil, err
		}
		item, err := s.item(known, f)
		if err != nil {
			return nil, err
		}
		b, first = e.append(b, item, first), false
	}
	return b, nil
}

// selected iterates over objects as a segment does.
func selected(objects []*storage.Object) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for _, o := range objects {
			if !yield(o) {
				return
			}
		}
	}
}
