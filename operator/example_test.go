package operator_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/operator"
)

// Run runs an operator until its context is done.
func Example() {
	op := operator.New("widgets.example.com")
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		if r.Object.Spec.Size == 0 {
			return operator.RetryAfter(errors.New("no size yet"), 10*time.Second)
		}
		r.Patch.Status("phase", "Ready")
		return nil
	}, operator.Retries(5), operator.Timeout(time.Hour))
	run := func(ctx context.Context, cfg *rest.Config) error { return op.Run(ctx, cfg) }
	_ = run
}

// The operator creates a ConfigMap for each widget, which Kubernetes deletes with it. The
// handler accepts an existing one, since it may be called again for the same change.
func Example_children() {
	op := operator.New("widgets.example.com")
	var client kubernetes.Interface
	operator.OnStart(op, func(ctx context.Context, cfg *rest.Config) (err error) {
		client, err = kubernetes.NewForConfig(cfg)
		return err
	})
	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		child := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: r.Object.Name, OwnerReferences: []metav1.OwnerReference{r.OwnerReference()}},
			Data:       map[string]string{"size": fmt.Sprint(r.Object.Spec.Size)},
		}
		_, err := client.CoreV1().ConfigMaps(r.Object.Namespace).Create(ctx, child, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// A daemon runs as long as its object exists. A timer is called repeatedly.
func ExampleDaemon() {
	op := operator.New("widgets.example.com")
	operator.Daemon(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
		for tick := time.Tick(10 * time.Second); ; {
			select {
			case <-tick:
				w, err := r.Latest()
				if err != nil {
					return err
				}
				r.Logger.Info("still there", "size", w.Spec.Size)
			case <-r.Stopping():
				return nil
			}
		}
	}, operator.Labels("watched=yes"))
	operator.Timer(op, time.Minute, func(ctx context.Context, r *operator.Request[*Widget]) error {
		r.Patch.Status("seen", time.Now().UTC().Format(time.RFC3339))
		return nil
	}, operator.Idle(10*time.Minute))
}

// An index lets handlers of one resource read another one without requests.
func ExampleIndex() {
	pods := operator.New("pods")
	onNode := operator.Index(pods, func(p *corev1.Pod) map[string]string {
		return map[string]string{p.Spec.NodeName: p.Name}
	})
	nodes := operator.New("nodes")
	operator.Timer(nodes, time.Minute, func(ctx context.Context, r *operator.Request[*corev1.Node]) error {
		r.Logger.Info("pods", "names", onNode.Get(r.Object.Name))
		return nil
	})
	run := func(ctx context.Context, cfg *rest.Config) error { return operator.Run(ctx, cfg, pods, nodes) }
	_ = run
}
