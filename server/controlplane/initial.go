package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/rbac"
)

// initialNamespaces are created at the start, as by kube-apiserver. All except kube-node-lease can't be deleted.
var initialNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic,
	corev1.NamespaceNodeLease}

// requiredNamespaces are the initial namespaces without which the server does not start.
var requiredNamespaces = initialNamespaces[:2]

// serviceName is the service of the API server, in the namespace default.
const serviceName = "kubernetes"

// createInitialObjects is a post-start hook: the server is not ready before it ends. It never returns an error:
// k8s.io/apiserver would end the process.
func (c *chain) createInitialObjects(hook genericapiserver.PostStartHookContext) error {
	for _, name := range initialNamespaces {
		what := "the namespace " + name
		ensure := func(ctx context.Context) error { return c.ensureNamespace(ctx, name) }
		err := c.ensureInitial(hook, what, ensure)
		if apierrors.HasStatusCause(err, causeNoSpace) && slices.Contains(requiredNamespaces, name) {
			c.startFailed <- fmt.Errorf("cannot create %s: %w", what, err)
			return nil
		}
	}
	var roles sync.WaitGroup // a role that cannot be read keeps no other object from being created
	defer roles.Wait()
	if c.policy != nil {
		roles.Go(func() {
			c.followRoles(hook, func(ctx context.Context) {
				ensure := func(ctx context.Context) error { return rbac.EnsureDefaults(ctx, c.client) }
				_ = c.ensureInitial(ctx, "the default roles", ensure)
			})
		})
	}
	// see ensureInitial: the server starts without it
	_ = c.ensureInitial(hook, "the service "+serviceName, c.ensureService)
	for _, class := range builtin.SystemPriorityClasses() {
		ensure := func(ctx context.Context) error { return c.ensureClass(ctx, class) }
		_ = c.ensureInitial(hook, "the priority class "+class.Name, ensure)
	}
	if c.defaults != nil {
		for _, name := range initialNamespaces {
			ensure := func(ctx context.Context) error { return c.defaults.Ensure(ctx, name) }
			_ = c.ensureInitial(hook, "the default objects of the namespace "+name, ensure)
		}
	}
	if c.workloads != nil {
		_ = c.ensureInitial(hook, "the first node", c.workloads.EnsureNode)
	}
	return nil
}

// followRoles returns when requests need not wait for roles any longer. ensure may create some.
func (c *chain) followRoles(hook context.Context, ensure func(context.Context)) {
	if err := c.policy.Follow(hook, ensure); err != nil && hook.Err() == nil {
		utilruntime.HandleErrorWithContext(hook, err, "The server starts without some roles or bindings")
	}
}

// ensureInitial repeats ensure until it succeeds. It returns an error if ctx ends, and one with causeNoSpace if etcd
// has no space: the next start creates what is missing.
func (c *chain) ensureInitial(ctx context.Context, what string, ensure func(context.Context) error) error {
	for {
		err := ensure(ctx)
		if err == nil || ctx.Err() != nil || apierrors.HasStatusCause(err, causeNoSpace) {
			return err
		}
		utilruntime.HandleErrorWithContext(ctx, err, "Creation of an initial object is retried", "object", what)
		select {
		case <-ctx.Done():
		case <-time.After(initialRetry):
		}
	}
}

// ensureNamespace creates a namespace that does not exist. It reads first: etcd refuses writes when it
// has no space, and a start on existing data must not depend on a write.
func (c *chain) ensureNamespace(ctx context.Context, name string) error {
	namespaces := c.client.CoreV1().Namespaces()
	_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ensureClass creates a priority class that does not exist.
func (c *chain) ensureClass(ctx context.Context, class *schedulingv1.PriorityClass) error {
	_, err := c.classes.Get(ctx, class.Name)
	if apierrors.IsNotFound(err) {
		err = c.classes.Create(ctx, class)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ensureService creates the service of the API server if it does not exist. An existing one is left as it is: with an
// adopted etcd, another server may maintain it. The service has no endpoints, since an address of this machine would
// not be valid in them.
func (c *chain) ensureService(ctx context.Context) error {
	services := c.client.CoreV1().Services(metav1.NamespaceDefault)
	_, err := services.Get(ctx, serviceName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	service, err := apiService(c.credentials.URL(), c.serviceRanges.First().String())
	if err != nil {
		return err
	}
	_, err = services.Create(ctx, service, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) { // another Service has the address
		service.Spec.ClusterIP = ""
		_, err = services.Create(ctx, service, metav1.CreateOptions{})
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsInternalError(err): // no address is left
		utilruntime.HandleErrorWithContext(ctx, err, "The server starts without its Service", "service", serviceName)
		return nil
	}
	return err
}

// apiService returns the service of the API server that listens at an address. Nothing answers at the cluster IP.
func apiService(address, clusterIP string) (*corev1.Service, error) {
	listener, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseInt(listener.Port(), 10, 32)
	if err != nil {
		return nil, err
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: serviceName,
			Labels: map[string]string{"provider": "kubernetes", "component": "apiserver"},
		},
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			ClusterIP:       clusterIP,
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(int32(port)),
			}},
		},
	}, nil
}
