// Daemons shows functions that run in the background as long as their object exists.
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

// ping reads the newest state of its object every second. When it is stopped, it returns
// by itself.
func ping(ctx context.Context, r *operator.Request[*Widget]) error {
	if r.Retry < 2 {
		return operator.RetryAfter(errors.New("not ready"), time.Second)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w, err := r.Latest()
			if err != nil {
				return err
			}
			r.Logger.Info("ping", "size", w.Spec.Size)
			r.Patch.Status("pinged", w.Spec.Size)
			if err := r.Apply(); err != nil { // now, and not only when it returns
				return err
			}
		case <-r.Stopping():
			r.Logger.Info("goodbye")
			return nil
		}
	}
}

// hold does not handle a stop; its context ends a second after the stop.
func hold(ctx context.Context, r *operator.Request[*Widget]) error {
	r.Logger.Info("holding on")
	<-ctx.Done()
	r.Logger.Info("letting go", "cause", context.Cause(ctx))
	return nil
}

func main() {
	op := operator.New("widgets.example.com")
	operator.Daemon(op, ping)
	// It starts and stops with the annotation, too.
	operator.Daemon(op, hold, operator.Annotations("hold=yes"), operator.StopGrace(time.Second, 10*time.Second))
	manager.Main(op)
}
