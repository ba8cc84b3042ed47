package follow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// TestEnding checks that a requested end does not hide a failure.
func TestEnding(t *testing.T) {
	terminated, stop := context.WithCancelCause(t.Context())
	stop(fmt.Errorf("terminated signal received: %w", context.Canceled))
	failed := errors.New("no space left on device")
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want error
	}{
		{t.Context(), failed, failed},
		{t.Context(), apitypes.ErrSynced, nil},
		{terminated, context.Cause(terminated), nil},
		{terminated, fmt.Errorf("list pods: %w", context.Canceled), nil},
		{terminated, apitypes.ErrSynced, nil},
		{terminated, failed, failed},
	} {
		if got := ending(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%v ends with %v, want %v", tt.err, got, tt.want)
		}
	}
}

// A closed stdout is refused: it is opened as the runtime opens it, and as > does.
func TestCheckOpen(t *testing.T) {
	for mode, closed := range map[int]bool{os.O_RDWR: true, os.O_WRONLY: false} {
		null, err := os.OpenFile(os.DevNull, mode, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		if err := checkOpen(null); (err != nil) != closed {
			t.Errorf("opened for %d: %v", mode, err)
		}
	}
}
