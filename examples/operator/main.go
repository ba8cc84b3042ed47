// An operator for the widgets of examples/widgets.yaml.
package main

import (
	"context"
	"fmt"
	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
}

func label(ctx context.Context, r *operator.Request[*Widget]) error {
	if r.Object.Spec.Size < 0 {
		return operator.Permanent(fmt.Errorf("size %d is negative", r.Object.Spec.Size))
	}
	r.Patch.Label("size", fmt.Sprint(r.Object.Spec.Size))
	return nil
}

func main() {
	op := operator.New("widgets.example.com")
	operator.OnCreate(op, label, operator.Retries(5))
	operator.OnField(op, "spec.size", label, operator.Retries(5))
	manager.Main(op)
}
