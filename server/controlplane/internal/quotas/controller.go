package quotas

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/internal/worker"
)

const (
	// minDelay and maxDelay bound the delay before a quota is handled again after an error; it doubles.
	minDelay = 10 * time.Millisecond
	maxDelay = 30 * time.Second
	// settleTime is how long after a write in its namespace a status is computed, and how long after its request a write
	// counts that no informer has: time for other servers' writes, and for informers.
	settleTime = time.Second
	// unknownDelay is the time after which a quota is handled again that names a resource which is not served.
	unknownDelay = 2 * time.Second
	// resync is the time between two computations of all statuses, as in kube-controller-manager.
	resync = 5 * time.Minute
)

// Controller computes the status of ResourceQuotas.
type Controller struct {
	client    kubernetes.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterface
	objects   Objects
	writes    *Writes
	// The fields below are set when there is a quota.
	quotas   cache.SharedIndexInformer
	lister   corelisters.ResourceQuotaLister
	worker   *worker.Worker[cache.ObjectName]
	registry quota.Registry
	followed *followed
}

// NewController returns a controller that writes by clients of the server. It starts nothing.
func NewController(
	client kubernetes.Interface, metadata metadata.Interface, discovery discovery.DiscoveryInterface,
	objects Objects, writes *Writes,
) *Controller {
	return &Controller{client: client, metadata: metadata, discovery: discovery, objects: objects, writes: writes}
}

// Run waits for the first quota, and computes statuses until ctx is done. It can be called once.
func (c *Controller) Run(ctx context.Context) {
	if c.objects.WaitForAny(ctx) != nil {
		return
	}
	if err := c.prepare(); err != nil { // not possible: the informers are new
		utilruntime.HandleErrorWithContext(ctx, err, "The status of quotas is not computed")
		return
	}
	var loops sync.WaitGroup
	defer loops.Wait()
	defer c.followed.informers.Wait()
	loops.Go(func() { c.quotas.RunWithContext(ctx) })
	loops.Go(func() { c.resync(ctx) })
	cache.WaitForCacheSync(ctx.Done(), c.quotas.HasSynced) // false when ctx is done: then the worker handles nothing
	c.worker.Run(ctx)
}

// prepare makes the informer of quotas, the worker and the evaluators.
func (c *Controller) prepare() error {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	c.quotas = coreinformers.NewResourceQuotaInformer(c.client, metav1.NamespaceAll, 0, indexers)
	c.lister = corelisters.NewResourceQuotaLister(c.quotas.GetIndexer())
	c.worker = worker.New(worker.Options[cache.ObjectName]{
		Handle: c.handle, Retrying: report, MinDelay: minDelay, MaxDelay: maxDelay,
	})
	c.followed = &followed{
		client: c.client, metadata: c.metadata,
		kinds:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.discovery)),
		changed: c.changed, writes: c.writes, sources: map[schema.GroupResource]*source{},
	}
	c.registry = generic.NewRegistry(evaluators(c.followed.lister))
	_, err := c.quotas.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.worker.Add(nameOf(obj.(*corev1.ResourceQuota))) },
		UpdateFunc: func(before, after any) {
			old, q := before.(*corev1.ResourceQuota), after.(*corev1.ResourceQuota)
			switch {
			case !quota.Equals(old.Spec.Hard, q.Spec.Hard):
				c.worker.Add(nameOf(q))
			case !equality.Semantic.DeepEqual(old.Status, q.Status):
				c.worker.AddAfter(nameOf(q), settleTime)
			}
		},
	})
	return err
}

func nameOf(q *corev1.ResourceQuota) cache.ObjectName { return cache.MetaObjectToName(q) }

// resync enqueues all quotas regularly.
func (c *Controller) resync(ctx context.Context) {
	tick := time.NewTicker(resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.changed(corev1.NamespaceAll, nil, 0)
		}
	}
}

// changed adds the quotas of a namespace that limit what an evaluator counts, after a delay. Without an evaluator it
// adds all of them.
func (c *Controller) changed(namespace string, of quota.Evaluator, delay time.Duration) {
	limiting, _ := c.lister.ResourceQuotas(namespace).List(labels.Everything()) // a list from a cache
	for _, q := range limiting {
		if of == nil || len(of.MatchingResources(quota.ResourceNames(q.Spec.Hard))) > 0 {
			c.worker.AddAfter(nameOf(q), delay)
		}
	}
}

// handle computes the status of a quota.
func (c *Controller) handle(ctx context.Context, name cache.ObjectName) error {
	q, err := c.lister.ResourceQuotas(name.Namespace).Get(name.Name)
	if err != nil { // the lister's only error is that the quota is gone
		return nil
	}
	again := c.inProgress(q) // before the computation: a write that is in it may fail meanwhile
	err = c.update(ctx, q)
	switch {
	case errors.Is(err, errUnknown):
		c.worker.AddAfter(name, unknownDelay)
		return nil
	case err == nil && again:
		c.worker.AddAfter(name, settleTime)
	}
	return err
}

// report reports an error, unless the quota was deleted, or a resource is being listed for the first time.
func report(ctx context.Context, name cache.ObjectName, err error) {
	if !apierrors.IsNotFound(err) && !errors.Is(err, errUnlisted) {
		utilruntime.HandleErrorWithContext(ctx, err, "Computation of a quota's status is retried",
			"namespace", name.Namespace, "name", name.Name)
	}
}

// update writes the status of a quota. The usage of a resource that cannot be listed stays as it is in the status. A
// write that the plugin counts meanwhile changes the quota, so that a status without it cannot be written.
func (c *Controller) update(ctx context.Context, q *corev1.ResourceQuota) error {
	unknown := c.follow(ctx, q)
	if errors.Is(unknown, errUnlisted) {
		return unknown
	}
	hard := quota.Add(corev1.ResourceList{}, q.Spec.Hard)
	usage, err := quota.CalculateUsage(q.Namespace, q.Spec.Scopes, hard, c.registry, q.Spec.ScopeSelector)
	used := quota.Add(corev1.ResourceList{}, q.Status.Used)
	for name, quantity := range usage {
		used[name] = quantity
	}
	used = quota.Mask(used, quota.ResourceNames(hard))
	current := q.Status.Used != nil && equality.Semantic.DeepEqual(q.Status.Hard, q.Spec.Hard) &&
		quota.Equals(used, q.Status.Used)
	if !current {
		q = q.DeepCopy()
		q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
		_, written := c.client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, q, metav1.UpdateOptions{})
		if written != nil {
			return written
		}
	}
	if unknown != nil {
		return unknown
	}
	return err
}

// follow follows the resources that a quota limits, and adds evaluators of those that it counts. It returns errUnlisted
// while a resource is listed for the first time, and errUnknown if one is not served.
func (c *Controller) follow(ctx context.Context, q *corev1.ResourceQuota) error {
	names := quota.ResourceNames(q.Spec.Hard)
	for _, name := range names {
		if of, ok := counted(name); ok && c.registry.Get(of) == nil {
			c.registry.Add(generic.NewObjectCountEvaluator(of, c.followed.lister(of), ""))
		}
	}
	var unknown error
	for _, e := range c.limiting(q) {
		switch err := c.followed.add(ctx, e); {
		case errors.Is(err, errUnlisted):
			return err
		case err != nil:
			unknown = err
		}
	}
	return unknown
}

// inProgress reports whether a status has what writes use that may fail.
func (c *Controller) inProgress(q *corev1.ResourceQuota) bool {
	return slices.ContainsFunc(c.limiting(q), func(e quota.Evaluator) bool {
		return len(c.writes.counted(q.Namespace, e.GroupResource())) > 0
	})
}

// limiting returns the evaluators of the resources that a quota limits.
func (c *Controller) limiting(q *corev1.ResourceQuota) (all []quota.Evaluator) {
	names := quota.ResourceNames(q.Spec.Hard)
	for _, e := range c.registry.List() {
		if len(e.MatchingResources(names)) > 0 {
			all = append(all, e)
		}
	}
	return all
}
