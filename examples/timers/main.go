// Timers shows functions that are called for each object again and again.
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
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
}

func main() {
	op := operator.New("widgets.example.com")

	// Every two seconds, from the object's appearance on.
	operator.Timer(op, 2*time.Second, func(ctx context.Context, r *operator.Request[*Widget]) error {
		r.Patch.Status("seen", time.Now().UTC().Format(time.RFC3339))
		return nil
	}, operator.ID("plain"))

	// Every second, once the object has not changed for three. The status that the timer above
	// changes is not part of the desired state, so it does not count.
	operator.Timer(op, time.Second, func(ctx context.Context, r *operator.Request[*Widget]) error {
		r.Logger.Info("nothing happens", "size", r.Object.Spec.Size)
		return nil
	}, operator.ID("idle"), operator.Idle(3*time.Second))

	// Its calls begin every two seconds, however long they take, the first one after a second.
	// An error is retried sooner.
	operator.Timer(op, 2*time.Second, func(ctx context.Context, r *operator.Request[*Widget]) error {
		if r.Retry == 0 {
			return operator.RetryAfter(errors.New("not at the first try"), 100*time.Millisecond)
		}
		r.Logger.Info("at the second try")
		return nil
	}, operator.ID("sharp"), operator.Sharp(), operator.InitialDelay(time.Second))

	manager.Main(op)
}
