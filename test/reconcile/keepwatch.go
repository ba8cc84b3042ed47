package reconcile

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/operator"
)

// Keepwatch runs the operator on Keepwatch. The options are added to its own.
func Keepwatch(ctx context.Context, cfg *rest.Config, namespace string, workers int, options ...operator.Option) error {
	op := operator.New("gadgets.example.com", append([]operator.Option{operator.Namespaces(namespace),
		operator.Workers(workers)}, options...)...)
	m := &controllerMaker{}
	operator.OnStart(op, m.start)
	operator.OnCreate(op, m.make, operator.Backoff(time.Second))
	return op.Run(ctx, cfg)
}

type controllerMaker struct{ client kubernetes.Interface }

func (m *controllerMaker) start(_ context.Context, cfg *rest.Config) (err error) {
	cfg.ContentType = runtime.ContentTypeProtobuf // as controller-runtime's client does
	m.client, err = kubernetes.NewForConfig(cfg)
	return err
}

func (m *controllerMaker) make(ctx context.Context, r *operator.Request[*Gadget]) error {
	g := r.Object
	child := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: g.Name, OwnerReferences: []metav1.OwnerReference{r.OwnerReference()}},
		Data:       g.data(),
	}
	_, err := m.client.CoreV1().ConfigMaps(g.Namespace).Create(ctx, child, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	r.Patch.Status("phase", ready)
	r.Patch.Status("child", child.Name)
	return nil
}
