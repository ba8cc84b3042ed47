package await

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestGoroutines(t *testing.T) {
	for _, test := range []struct {
		name      string
		code      int // of the tests
		lives     time.Duration
		wantCode  int
		wantWaits bool
	}{
		{name: "ends by itself", lives: 3 * time.Second, wantWaits: true},
		{name: "is left", lives: time.Hour, wantCode: 1, wantWaits: true},
		{name: "tests failed", code: 2, lives: time.Hour, wantCode: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ignore := goleak.IgnoreCurrent()
				end := make(chan struct{})
				go func() {
					select {
					case <-end:
					case <-time.After(test.lives):
					}
				}()
				defer close(end)
				begun := time.Now()
				if code := Goroutines(test.code, ignore); code != test.wantCode {
					t.Errorf("the exit code is %d, want %d", code, test.wantCode)
				}
				if waited := time.Since(begun); (waited > 0) != test.wantWaits || waited > 2*leaked {
					t.Errorf("waited %v", waited)
				}
			})
		})
	}
}
