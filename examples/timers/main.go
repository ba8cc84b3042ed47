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

	// Every second, once nobody has changed the object for three. That it is changed by
	// the timer above does not count, since a status is no part of its essence.
	operator.Timer(op, time.Second, func(ctx context.Context, r *operator.Request[*Widget]) error {
		r.Logger.Info("nothing happens", "size", r.Object.Spec.Size)
		return nil
	}, operator.ID("idle"), operator.Idle(3*time.Second))

	// Its calls begin every two seconds, however long they take, the first of them after
	// one. An error is tried again sooner.
	operator.Timer(op, 2*time.Second, func(ctx context.Context, r *operator.Request[*Widget]) error {
		if r.Retry == 0 {
			return operator.RetryAfter(errors.New("not at the first try"), 100*time.Millisecond)
		}
		r.Logger.Info("at the second try")
		return nil
	}, operator.ID("sharp"), operator.Sharp(), operator.InitialDelay(time.Second))

	manager.Main(op)
}
