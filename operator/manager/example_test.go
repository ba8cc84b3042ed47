package manager_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
}

// A complete program. It has the flags --kubeconfig and --leader-elect, serves health and
// metrics, and ends after SIGTERM.
func Example() {
	op := operator.New("widgets.example.com")
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		if r.Object.Spec.Size == 0 {
			return operator.RetryAfter(errors.New("no size yet"), 10*time.Second)
		}
		r.Patch.Status("phase", "Ready")
		return nil
	}, operator.Retries(5), operator.Timeout(time.Hour))
	manager.Main(op)
}

// A program with a main function of its own elects a leader and runs the operator.
func ExampleElected() {
	op := operator.New("widgets.example.com", operator.Namespaces("web"), operator.Workers(4))
	operator.OnResume(op, func(ctx context.Context, r *operator.Request[*Widget]) error { return nil })
	run := func(ctx context.Context, cfg *rest.Config) error {
		lease := manager.Lease{Namespace: "web", Name: "widgets"}
		return manager.Elected(ctx, cfg, lease, func(ctx context.Context) error {
			return operator.Run(ctx, cfg, op)
		})
	}
	_ = run
}

// A program with an HTTP server of its own serves the health of its operators.
func ExampleHealthHandler() {
	op := operator.New("widgets.example.com")
	answer := httptest.NewRecorder()
	manager.HealthHandler(op).ServeHTTP(answer, httptest.NewRequest("GET", "/healthz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 widgets.example.com: ok
}
