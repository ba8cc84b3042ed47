package managed

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keepwatch/keepwatch/informer/clientgo"
)

// bySize is the field index of the operator's config maps.
const bySize = "data.size"

// newManager makes a manager with our informers as its cache, in the given namespaces,
// with leader election by name.
func newManager(cfg *rest.Config, group *clientgo.Group, scheme *runtime.Scheme, leases string,
	namespaces ...string) (manager.Manager, error) {
	in := map[string]cache.Config{}
	for _, ns := range namespaces {
		in[ns] = cache.Config{}
	}
	return ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  scheme,
		Cache:   cache.Options{NewInformer: group.NewSharedIndexInformer, DefaultNamespaces: in},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics: metricsserver.Options{BindAddress: "0"},

		LeaderElection: true, LeaderElectionID: "widgets", LeaderElectionNamespace: leases,
		// The lease is released: the next instance does not wait for its end, which no busy machine reaches.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(2 * deadline), RenewDeadline: ptr.To(deadline),
		RetryPeriod: ptr.To(200 * time.Millisecond),

		Controller:              config.Controller{UsePriorityQueue: ptr.To(true), SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(deadline),
	})
}

// operator writes a config map for each widget, with its size and a label of the widget's
// secret.
type operator struct{ client.Client }

func (o *operator) setUp(ctx context.Context, mgr manager.Manager) error {
	o.Client = mgr.GetClient()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, bySize, func(o client.Object) []string {
		return []string{o.(*corev1.ConfigMap).Data["size"]}
	}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&Widget{}).
		Owns(&corev1.ConfigMap{}).
		WatchesMetadata(&corev1.Secret{}, &handler.EnqueueRequestForObject{}).
		Complete(o)
}

func (o *operator) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var widget Widget
	if err := o.Get(ctx, r.NamespacedName, &widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := o.Get(ctx, r.NamespacedName, secret); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, o.Client, m, func() error {
		m.Data = map[string]string{"size": strconv.FormatInt(widget.Spec.Size, 10), "seal": secret.Labels["seal"]}
		return controllerutil.SetControllerReference(&widget, m, o.Scheme())
	})
	return ctrl.Result{}, err
}
