package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
)

// TestTargetErrorWins checks that Run returns an error of the target even if the context ends
// at the same time, unless the error is the context's.
func TestTargetErrorWins(t *testing.T) {
	full, asked := errors.New("no space left on device"), errors.New("asked to end")
	for _, tt := range []struct{ fails, want error }{
		{full, full},
		{nil, asked},
		{context.Canceled, asked},
		{fmt.Errorf("write: %w", context.Canceled), asked},
		{keepwatch.Failed(keepwatch.Expired, "too old"), asked},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		target := ending{func() error { cancel(asked); return tt.fails }}
		if got := reflector.New(quiet{}, target, reflector.Options{}).Run(ctx); got != tt.want {
			t.Errorf("a target that fails with %v ends the run with %v, want %v", tt.fails, got, tt.want)
		}
	}
}

// ending is a target that ends the run with its first list.
type ending struct{ fail func() error }

func (ending) Revision() keepwatch.Revision                          { return 0 }
func (ending) Apply(context.Context, keepwatch.Batch) (int, error)   { return 0, nil }
func (ending) Invalidate(context.Context, keepwatch.GapReason) error { return nil }
func (e ending) Replace(context.Context, keepwatch.Relist) (keepwatch.Replacement, error) {
	return nil, e.fail()
}

// quiet is a source with an empty list.
type quiet struct{ keepwatch.Source }

func (quiet) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "none")
}

func (quiet) List(context.Context, keepwatch.ListRequest) (keepwatch.Page, error) {
	return keepwatch.Page{Revision: 7}, nil
}
