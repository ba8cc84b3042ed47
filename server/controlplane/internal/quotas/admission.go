package quotas

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes"
)

// PluginName is the name of the plugin, as in kube-apiserver's flag --enable-admission-plugins.
const PluginName = resourcequota.PluginName

// workers is the number of namespaces whose writes are evaluated at a time, as in kube-apiserver.
const workers = 5

// Objects are the ResourceQuotas in the server's memory.
type Objects interface {
	// Any reports whether a namespace has one. It may miss one that was created just before.
	Any(ctx context.Context, namespace string) (bool, error)
	// List returns copies of the newest state of those of a namespace.
	List(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error)
	// WaitForAny returns nil when there is one in any namespace, or an error when ctx is done.
	WaitForAny(ctx context.Context) error
}

// NewAdmission returns the plugin. Its goroutines begin with the first write in a namespace with a quota, and end when
// stop is closed.
func NewAdmission(client kubernetes.Interface, objects Objects, writes *Writes,
	stop <-chan struct{}) admission.Interface {
	none := func(schema.GroupResource) generic.ListFuncByNamespace { return nil }
	p := &plugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		objects: objects, writes: writes, registry: generic.NewRegistry(evaluators(none)),
	}
	p.evaluator = sync.OnceValue(func() resourcequota.Evaluator {
		return resourcequota.NewQuotaEvaluator(accessor{client, objects, writes}, ignored, p.registry, nil, nil, workers,
			stop)
	})
	return p
}

type plugin struct {
	*admission.Handler
	objects   Objects
	writes    *Writes
	registry  quota.Registry
	evaluator func() resourcequota.Evaluator
}

var _ admission.ValidationInterface = (*plugin)(nil)

// Validate returns 403 Forbidden for a write that exceeds a quota of its namespace, and adds what it uses to the
// quotas' status.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind() {
		return nil
	}
	limited, err := p.objects.Any(ctx, a.GetNamespace())
	if err != nil || !limited {
		return err
	}
	if !p.uses(a) {
		return p.evaluator().Evaluate(a)
	}
	refused := p.writes.begin(ctx, a)
	if err := p.evaluator().Evaluate(a); err != nil {
		refused()
		return err
	}
	return nil
}

// uses reports whether a write changes what its object uses.
func (p *plugin) uses(a admission.Attributes) bool {
	of := a.GetResource().GroupResource()
	_, never := ignored[of]
	e := p.registry.Get(of)
	switch {
	case never || a.IsDryRun():
		return false
	case e == nil: // only counted
		return a.GetOperation() == admission.Create
	case a.GetOperation() == admission.Create:
		return e.Handles(a)
	}
	own, ok := e.(*evaluator)
	return ok && own.Handles(a) && own.changes(a.GetOldObject(), a.GetObject())
}

// accessor reads and writes quotas for the evaluator.
type accessor struct {
	client  kubernetes.Interface
	objects Objects
	writes  *Writes
}

func (a accessor) GetQuotas(namespace string) ([]corev1.ResourceQuota, error) {
	return a.objects.List(context.Background(), namespace)
}

func (a accessor) UpdateQuotaStatus(q *corev1.ResourceQuota) error {
	a.writes.count(q.Namespace)
	_, err := a.client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(context.Background(), q, metav1.UpdateOptions{})
	return err
}
