package policies

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	informers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Checker compiles the expressions of ValidatingAdmissionPolicies with the types of the resources that they match, and
// writes the warnings into their status, as kube-controller-manager does. They change no decision.
type Checker struct {
	client   kubernetes.Interface
	informer informers.ValidatingAdmissionPolicyInformer
	queue    workqueue.TypedRateLimitingInterface[string]
	types    validating.TypeChecker
}

// NewChecker returns a checker of the policies of an informer. Run starts it.
func NewChecker(client kubernetes.Interface, informer informers.ValidatingAdmissionPolicyInformer) (*Checker, error) {
	c := &Checker{
		client: client, informer: informer,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		types: validating.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client.Discovery()},
			RestMapper:     NewMapper(client.Discovery()),
		},
	}
	enqueue := func(object any) {
		if policy, ok := object.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
			c.queue.Add(policy.Name)
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	})
	if err != nil {
		c.queue.ShutDown()
	}
	return c, err
}

// Run checks policies until ctx is done.
func (c *Checker) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	for {
		name, done := c.queue.Get()
		if done {
			return
		}
		if err := c.check(ctx, name); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "The check of a policy's types is retried", "policy", name)
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// check writes the status of a policy that has changed.
func (c *Checker) check(ctx context.Context, name string) error {
	policy, err := c.informer.Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || policy.Generation <= policy.Status.ObservedGeneration {
		return err
	}
	policy = policy.DeepCopy()
	policy.Status.ObservedGeneration = policy.Generation
	policy.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: c.types.Check(policy)}
	_, err = c.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().UpdateStatus(ctx, policy,
		metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the informer delivers the change
	}
	return err
}
