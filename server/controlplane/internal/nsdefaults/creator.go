// Package nsdefaults creates the two objects that every namespace of a cluster has: the service account default, and
// the config map kube-root-ca.crt with the authorities of the API server's certificate. In a cluster, two controllers
// of kube-controller-manager do. Contents, names and the annotation are theirs.
package nsdefaults

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/internal/worker"
)

const (
	accountName     = "default"
	authoritiesName = "kube-root-ca.crt"
	authoritiesKey  = "ca.crt"

	descriptionAnnotation = "kubernetes.io/description"
	description           = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal " +
		"endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// The delays before a namespace is tried again after an error; they double.
const (
	minDelay = 50 * time.Millisecond
	maxDelay = time.Minute
)

// Creator creates the default objects of namespaces.
type Creator struct {
	client      kubernetes.Interface
	authorities string
	namespaces  corelisters.NamespaceLister
	owned       []cache.SharedIndexInformer // of the objects that it creates
	worker      *worker.Worker[string]
}

// New returns a Creator that follows an informer of namespaces, which the caller runs. authorities are certificates,
// PEM.
func New(client kubernetes.Interface, namespaces coreinformers.NamespaceInformer,
	authorities []byte) (*Creator, error) {
	c := &Creator{
		client: client, authorities: string(authorities), namespaces: namespaces.Lister(),
		owned: []cache.SharedIndexInformer{
			coreinformers.NewFilteredServiceAccountInformer(client, metav1.NamespaceAll, 0, nil, named(accountName)),
			coreinformers.NewFilteredConfigMapInformer(client, metav1.NamespaceAll, 0, nil, named(authoritiesName)),
		},
	}
	c.worker = worker.New(worker.Options[string]{
		Handle: c.handle, Retrying: report, MinDelay: minDelay, MaxDelay: maxDelay,
	})
	_, err := namespaces.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.worker.Add(obj.(*corev1.Namespace).Name) },
		UpdateFunc: func(_, obj any) { c.worker.Add(obj.(*corev1.Namespace).Name) },
	})
	for _, informer := range c.owned {
		_, problem := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, obj any) { c.enqueueNamespaceOf(obj) },
			DeleteFunc: c.enqueueNamespaceOf,
		})
		err = errors.Join(err, problem)
	}
	return c, err
}

// named selects the objects of one name.
func named(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
}

func (c *Creator) enqueueNamespaceOf(obj any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	namespace, _, _ := cache.SplitMetaNamespaceKey(key) // the key was made above
	c.worker.Add(namespace)
}

// Run creates what active namespaces lack, restores a changed config map, and returns when ctx is done.
func (c *Creator) Run(ctx context.Context) {
	var informers sync.WaitGroup
	defer informers.Wait()
	for _, informer := range c.owned {
		informers.Go(func() { informer.RunWithContext(ctx) })
		informers.Go(func() { c.enqueueAll(ctx, informer.HasSynced) })
	}
	c.worker.Run(ctx)
}

// enqueueAll looks at all namespaces once more after the first list of what they own: it does not show what was created
// and deleted before it.
func (c *Creator) enqueueAll(ctx context.Context, listed cache.InformerSynced) {
	if !cache.WaitForCacheSync(ctx.Done(), listed) {
		return
	}
	namespaces, err := c.namespaces.List(labels.Everything())
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "The namespaces are not listed")
	}
	for _, n := range namespaces {
		c.worker.Add(n.Name)
	}
}

// handle creates the objects of a namespace, unless it is gone or being deleted.
func (c *Creator) handle(ctx context.Context, name string) error {
	namespace, err := c.namespaces.Get(name)
	if err != nil || namespace.DeletionTimestamp != nil { // the lister's only error is that the namespace is gone
		return nil
	}
	return c.Ensure(ctx, name)
}

func report(ctx context.Context, name string, err error) {
	utilruntime.HandleErrorWithContext(ctx, err, "Creation of a namespace's default objects is retried", "namespace", name)
}

// Ensure creates the default objects of one namespace that don't exist, and restores the contents of the config map. A
// namespace that is being deleted or does not exist needs none.
func (c *Creator) Ensure(ctx context.Context, namespace string) error {
	return errors.Join(unlessDeleted(c.ensureAccount(ctx, namespace)), unlessDeleted(c.ensureAuthorities(ctx, namespace)))
}

// unlessDeleted returns nil instead of the error of a write in a namespace that is being deleted or does not exist.
func unlessDeleted(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Creator) ensureAccount(ctx context.Context, namespace string) error {
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Get(ctx, accountName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: accountName}}
	_, err = accounts.Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *Creator) ensureAuthorities(ctx context.Context, namespace string) error {
	configMaps := c.client.CoreV1().ConfigMaps(namespace)
	want := map[string]string{authoritiesKey: c.authorities}
	got, err := configMaps.Get(ctx, authoritiesName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: authoritiesName, Annotations: map[string]string{descriptionAnnotation: description},
			},
			Data: want,
		}, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case maps.Equal(got.Data, want) && got.Annotations[descriptionAnnotation] != "":
		return nil
	}
	got.Data = want
	metav1.SetMetaDataAnnotation(&got.ObjectMeta, descriptionAnnotation, description)
	_, err = configMaps.Update(ctx, got, metav1.UpdateOptions{})
	return err
}
