package audit

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/keepwatch/keepwatch"
)

// merge compares two sides in the order of keys.
type merge struct {
	revision keepwatch.Revision
	report   *Report
}

func newMerge(revision keepwatch.Revision) *merge {
	return &merge{revision, &Report{Revision: revision}}
}

// run reads both sides at once and compares their digests.
func (m *merge) run(ctx context.Context, server, against side) error {
	group, ctx := errgroup.WithContext(ctx)
	a, readServer := readAhead(ctx, server, m.revision)
	b, readAgainst := readAhead(ctx, against, m.revision)
	group.Go(readServer)
	group.Go(readAgainst)
	group.Go(func() error { return m.compare(a, b) })
	if err := group.Wait(); err != nil {
		return err
	}
	m.report.Server, m.report.Against = a.finish(), b.finish()
	return nil
}

// compare compares two sequences. After an error of one reader the sequences end early, and the
// report is discarded.
func (m *merge) compare(a, b *sequence) error {
	x, err := a.next()
	if err != nil {
		return err
	}
	y, err := b.next()
	for err == nil && (x != nil || y != nil) {
		switch c := order(x, y); {
		case c < 0:
			m.add(x, Missing)
			x, err = a.next()
		case c > 0:
			m.add(y, Extra)
			y, err = b.next()
		default:
			if x.digest != y.digest {
				m.add(x, Different)
			}
			if x, err = a.next(); err == nil {
				y, err = b.next()
			}
		}
	}
	return err
}

// order compares the keys of two objects. The end follows all keys.
func order(x, y *object) int {
	switch {
	case x == nil:
		return 1
	case y == nil:
		return -1
	}
	return x.key.Compare(y.key)
}

func (m *merge) add(o *object, kind Kind) {
	r := m.report
	switch kind {
	case Missing:
		r.Missing++
	case Extra:
		r.Extra++
	case Different:
		r.Different++
	}
	if len(r.Differences) < MaxDifferences {
		r.Differences = append(r.Differences, Difference{Namespace: o.key.Namespace, Name: o.key.Name, Kind: kind})
	}
}

// maxUnread is the number of objects in a row whose reads have failed with a server's error, behind which no other one
// is read: each has taken some attempts.
const maxUnread = 3

// finish adds the fields of the different objects, and returns the report.
func (m *merge) finish(ctx context.Context, server, against side) (*Report, error) {
	var last error
	unread := 0
	for i := range m.report.Differences {
		d := &m.report.Differences[i]
		switch {
		case d.Kind != Different:
			continue
		case unread < maxUnread:
			last = d.addFields(ctx, server, against)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if last == nil {
			unread = 0
			continue
		}
		if d.Unknown = last.Error(); failed(last, keepwatch.Unreachable, keepwatch.Idle, keepwatch.ServerError) {
			unread++
		}
	}
	return m.report, nil
}
