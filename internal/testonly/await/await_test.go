package await

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that records its failure.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

// fails returns the message with which wait fails, and after how long.
func fails(t *testing.T, wait func(testing.TB)) (message string, after time.Duration) {
	f := &failing{TB: t}
	begun := time.Now()
	defer func() {
		if recover() == nil {
			t.Error("it does not fail")
		}
		message, after = f.message, time.Since(begun)
	}()
	wait(f)
	return "", 0
}

func TestStatesThatAreReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		late := func() bool { return time.Since(begun) > time.Minute }
		True(t, "a minute is over", late)
		State(t, "a minute is over", func() (bool, string) { return late(), "" })
		NoError(t, "a minute is over", func() error {
			if !late() {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(begun); took > time.Minute+2*time.Second {
			t.Errorf("it returns %v after the state was reached", took-time.Minute)
		}
		c := make(chan int, 1)
		c <- 7
		if got := Receive(t, "seven", c); got != 7 {
			t.Errorf("received %d", got)
		}
	})
}

func TestStatesThatAreNotReached(t *testing.T) {
	for name, wait := range map[string]func(testing.TB){
		"True": func(t testing.TB) {
			True(t, "it flies", func() bool { return false }, func() string { return "feathers" })
		},
		"State": func(t testing.TB) {
			State(t, "it flies", func() (bool, string) { return false, "feathers" })
		},
		"NoError": func(t testing.TB) {
			NoError(t, "it flies", func() error { return errors.New("feathers") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				message, after := fails(t, wait)
				if !strings.Contains(message, "it flies") || !strings.Contains(message, "feathers") {
					t.Errorf("the message is %q", message)
				}
				if after < Deadline || after > Deadline+2*time.Second {
					t.Errorf("it fails after %v", after)
				}
			})
		})
	}
}
