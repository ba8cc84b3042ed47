// Exceptions shows the effect of a handler's errors: which are retried, when, and how
// often.
package main

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
}

func main() {
	op := operator.New("widgets.example.com")

	// Each call fails in another way; the third one is the last.
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		switch r.Retry {
		case 0:
			return operator.RetryAfter(errors.New("the first failure"), time.Second)
		case 1:
			return errors.New("the second failure, of no kind: again after the backoff")
		default:
			return operator.Permanent(errors.New("the third failure, permanent"))
		}
	}, operator.ID("stubborn"), operator.Backoff(2*time.Second))

	// A panic is an error like any other. After two calls it is over.
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		panic("at the disco")
	}, operator.ID("panicking"), operator.Backoff(time.Second), operator.Retries(2))

	// The third call would be after the timeout, so the second is the last.
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		return errors.New("still not there")
	}, operator.ID("waiting"), operator.Backoff(2*time.Second), operator.Timeout(3*time.Second))

	// The error of this one is ignored.
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		return errors.New("whatever")
	}, operator.ID("careless"), operator.OnError(operator.Ignore))

	manager.Main(op)
}
