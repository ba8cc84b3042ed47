package health_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch/informer/health"
)

// A status is unhealthy once the informer has not followed its resource for too long.
func ExampleStatus_Healthy() {
	s := health.Status{
		State: health.Stalled, NotLiveSince: time.Now().Add(-3 * time.Minute),
		LastFailure: errors.New("connection refused"),
	}
	fmt.Println(s.Healthy(2*time.Minute) != nil) // STALLED, and not following for 3m0s: connection refused
	fmt.Println(s.Healthy(time.Hour))
	// Output:
	// true
	// <nil>
}
