// Fields shows handlers of one field, of the spec and of the status, and of certain
// values of one.
package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type request = operator.Request[*Widget]

func main() {
	op := operator.New("widgets.example.com")

	operator.OnField(op, "spec.size", func(ctx context.Context, r *request) error {
		for _, d := range r.Diff {
			r.Logger.Info("size", "was", d.Old, "is", d.New)
		}
		return nil
	})

	// A status field is not part of the desired state; this handler follows it all the same.
	operator.OnField(op, "status.phase", func(ctx context.Context, r *request) error {
		r.Logger.Info("phase", "was", r.Old.Status.Phase, "is", r.Object.Status.Phase)
		return nil
	})

	operator.OnUpdate(op, func(ctx context.Context, r *request) error {
		r.Logger.Info("switched off")
		return nil
	}, operator.ID("off"), operator.To("spec.size", 0))

	operator.OnUpdate(op, func(ctx context.Context, r *request) error {
		r.Logger.Info("recovered")
		return nil
	}, operator.ID("recovered"), operator.From("status.phase", "Failed"), operator.To("status.phase", "Running"))

	// A label's name has dots, which are part of it.
	operator.OnField(op, `metadata.labels.example\.com/team`, func(ctx context.Context, r *request) error {
		r.Logger.Info("another team", "diff", r.Diff)
		return nil
	}, operator.ID("team"))

	manager.Main(op)
}
