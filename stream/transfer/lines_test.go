package transfer_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// etcd is a server whose revision grows with every read.
type etcd struct {
	revision keepwatch.Revision
	fail     error
}

// Newest is a source's, whose other methods are not called.
func (e *etcd) Newest(context.Context) (keepwatch.Revision, error) {
	e.revision += 3
	return e.revision, e.fail
}

type source struct {
	keepwatch.Source
	*etcd
}

func (s source) Newest(ctx context.Context) (keepwatch.Revision, error) { return s.etcd.Newest(ctx) }

func TestLines(t *testing.T) {
	a, b, c := &etcd{revision: 1000}, &etcd{revision: 5}, &etcd{revision: 90_000}
	sources := []keepwatch.Source{source{nil, a}, source{nil, b}, source{nil, a}, source{nil, c}, source{nil, b},
		source{nil, a}}
	lines, err := transfer.Lines(t.Context(), sources)
	if want := []int{0, 1, 0, 2, 1, 0}; err != nil || !slices.Equal(lines, want) {
		t.Errorf("got %v, %v, want %v", lines, err, want)
	}
	b.fail = errors.New("down")
	if _, err := transfer.Lines(t.Context(), sources); !errors.Is(err, b.fail) {
		t.Errorf("got %v", err)
	}
}
