package operators

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/keepwatch/keepwatch/internal/pause"
)

// world is a server with its objects, and what passes between it and the operator.
type world struct {
	server
	traffic  *traffic
	operator *rest.Config // the operator's
	objects  dynamic.Interface
	kinds    atomic.Pointer[meta.RESTMapper]
	defined  map[string]bool // the resources with a definition
	given    given
	initial  initial // of the world from which those of runs are forked
	folder   string
	port     int    // of the operator's webhooks, if it serves some
	label    string // of the operator's output
}

// user is the operator's name at the server, unless its roles bind a service account.
const user = "judged-operator"

// newWorld starts a server without objects of the run, with definitions and roles.
func newWorld(ctx context.Context, o Options) (*world, error) {
	objects, err := readObjects(o.CRDs)
	if err != nil {
		return nil, fmt.Errorf("CRDs: %w", err)
	}
	roles, err := readObjects(o.RBAC)
	if err != nil {
		return nil, fmt.Errorf("RBAC: %w", err)
	}
	w := &world{traffic: newTraffic(user, "system:masters")}
	if len(roles) > 0 {
		if w.traffic.user, w.traffic.groups, err = accountOf(roles); err != nil {
			return nil, err
		}
	}
	start := newTestServer
	if o.serve != nil {
		start = o.serve
	}
	if w.server, err = start(w.traffic, o.Simulate, len(roles) > 0); err != nil {
		return nil, err
	}
	if err := w.connect(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	for _, object := range append(objects, roles...) {
		if err := w.apply(ctx, object); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if err := w.discover(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// accountOf returns the service account to which roles are bound, as a user with groups.
func accountOf(roles []*unstructured.Unstructured) (name string, groups []string, err error) {
	for _, o := range roles {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		for _, s := range subjects {
			subject, _ := s.(map[string]any)
			if subject["kind"] != "ServiceAccount" {
				continue
			}
			namespace, _ := subject["namespace"].(string)
			if namespace == "" {
				namespace = o.GetNamespace()
			}
			name, _ := subject["name"].(string)
			groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
			return "system:serviceaccount:" + namespace + ":" + name, groups, nil
		}
	}
	return "", nil, errors.New("RBAC: no binding names a ServiceAccount, as which the operator would run")
}

// fork returns a world with the same objects, which begins where w is now.
func (w *world) fork() (*world, error) {
	fork := &world{defined: w.defined, traffic: newTraffic(w.traffic.user, w.traffic.groups...)}
	fork.kinds.Store(w.kinds.Load())
	var err error
	if fork.server, err = w.server.fork(fork.traffic); err != nil {
		return nil, err
	}
	if fork.folder, err = os.MkdirTemp("", "keepwatch-judge-"); err == nil {
		err = fork.connect()
	}
	if err != nil {
		return nil, errors.Join(err, fork.close())
	}
	return fork, nil
}

// connect makes the clients of a server.
func (w *world) connect() error {
	w.traffic.world = w
	var err error
	if w.objects, err = dynamic.NewForConfig(w.RESTConfig()); err != nil {
		return err
	}
	if w.operator, err = w.UserConfig(w.traffic.user, w.traffic.groups...); err != nil {
		return err
	}
	if w.kinds.Load() == nil {
		return w.refreshMapper()
	}
	return nil
}

func (w *world) close() error {
	w.traffic.end()
	err := w.server.close()
	if w.folder != "" {
		err = errors.Join(err, os.RemoveAll(w.folder))
	}
	return err
}

func (w *world) refreshMapper() error {
	client, err := discovery.NewDiscoveryClientForConfig(w.RESTConfig())
	if err != nil {
		return err
	}
	kinds, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(kinds)
	w.kinds.Store(&mapper)
	return nil
}

// mapper returns the newest one: a write of the operator may ask for it while a step refreshes it.
func (w *world) mapper() meta.RESTMapper { return *w.kinds.Load() }

// discover waits until every definition is served, and has its kinds in the mapper.
func (w *world) discover(ctx context.Context) error {
	crds, err := w.objects.Resource(definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w.defined = map[string]bool{}
	for _, crd := range crds.Items {
		w.defined[crd.GetName()] = true
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		err := poll(ctx, func() error {
			mapping, err := w.mapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			if err == nil {
				_, err = w.objects.Resource(mapping.Resource).List(ctx, metav1.ListOptions{Limit: 1})
			} else {
				err = errors.Join(err, w.refreshMapper())
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w", crd.GetName(), err)
		}
	}
	return nil
}

// mapping returns the type of an object, whose namespace becomes default if it has none.
func (w *world) mapping(o *unstructured.Unstructured) (gvr schema.GroupVersionResource, namespaced bool, err error) {
	kind := o.GroupVersionKind()
	mapping, err := w.mapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		if err = w.refreshMapper(); err == nil {
			mapping, err = w.mapper().RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	if err != nil {
		return gvr, false, err
	}
	namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
	if namespaced && o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return mapping.Resource, namespaced, nil
}

// resource returns the endpoint of an object.
func (w *world) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvr, namespaced, err := w.mapping(o)
	if err != nil {
		return nil, err
	}
	w.traffic.touch(gvr)
	if !namespaced {
		return w.objects.Resource(gvr), nil
	}
	return w.objects.Resource(gvr).Namespace(o.GetNamespace()), nil
}

// keysOf returns the keys of the objects that a step applies, or none if they include a namespace.
func (w *world) keysOf(s step) ([]string, error) {
	if s.action != apply {
		return nil, nil
	}
	var keys []string
	for _, o := range s.objects {
		if o.GetKind() == "Namespace" {
			return nil, nil
		}
		o = o.DeepCopy()
		gvr, _, err := w.mapping(o)
		if err != nil {
			return nil, err
		}
		keys = append(keys, Place{Resource: gvr.GroupResource().String(), Namespace: o.GetNamespace(),
			Name: o.GetName()}.key())
	}
	return keys, nil
}

// kept returns the names of the objects of a type in a namespace that stay if nobody deletes them: those that are not
// being deleted, and whose owners are not all gone.
func (w *world) kept(ctx context.Context, of schema.GroupVersionResource, namespace string) (map[string]bool, error) {
	list, err := w.objects.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, o := range list.Items {
		owners := o.GetOwnerReferences()
		exists := func(owner metav1.OwnerReference) bool { return w.exists(ctx, owner, namespace) }
		if o.GetDeletionTimestamp() == nil && (len(owners) == 0 || slices.ContainsFunc(owners, exists)) {
			names[o.GetName()] = true
		}
	}
	return names, nil
}

// exists reports whether an owner of an object is there, by what the server has seen.
func (w *world) exists(ctx context.Context, owner metav1.OwnerReference, namespace string) bool {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	mapping, err := w.mapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return true
	}
	api := dynamic.ResourceInterface(w.objects.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		api = w.objects.Resource(mapping.Resource).Namespace(namespace)
	}
	o, err := api.Get(ctx, owner.Name, metav1.GetOptions{})
	return !apierrors.IsNotFound(err) && (err != nil || o.GetUID() == owner.UID)
}

func (w *world) apply(ctx context.Context, o *unstructured.Unstructured) error {
	resource, err := w.resource(o)
	if err == nil {
		_, err = resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "workload", Force: true})
	}
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// perform does what a step says, except that it does not wait, see run.perform. It returns how many things it has done.
func (w *world) perform(ctx context.Context, s step) (done int, err error) {
	if s.action == advance {
		if err := w.advance(s.by); err != nil {
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
		return 1, nil
	}
	for done, o := range s.objects {
		if err := w.performOn(ctx, s.action, o.DeepCopy()); err != nil {
			return done, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return len(s.objects), nil
}

func (w *world) performOn(ctx context.Context, a action, o *unstructured.Unstructured) error {
	resource, err := w.resource(o)
	if err != nil {
		return err
	}
	switch a {
	case apply:
		return w.apply(ctx, o)
	case patch:
		content, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		_, err = resource.Patch(ctx, o.GetName(), types.MergePatchType, content,
			metav1.PatchOptions{FieldManager: "workload"})
		return err
	case remove:
		return resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
	return nil
}

// reached reports whether the objects of a step exist and have its fields.
func (w *world) reached(ctx context.Context, s step) (bool, error) {
	for _, want := range s.objects {
		want = want.DeepCopy()
		resource, err := w.resource(want)
		if err != nil {
			return false, err
		}
		have, err := resource.Get(ctx, want.GetName(), metav1.GetOptions{})
		if err != nil || !contains(have.Object, want.Object) {
			return false, nil // it may come
		}
	}
	return true, nil
}

// contains reports whether a value has all fields of another. Lists are compared item by item.
func contains(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		for name, value := range want {
			ok = ok && contains(fields[name], value)
		}
		return ok
	case []any:
		items, ok := have.([]any)
		ok = ok && len(items) == len(want)
		for i := range want {
			ok = ok && contains(items[i], want[i])
		}
		return ok
	default:
		return fmt.Sprint(have) == fmt.Sprint(want)
	}
}

const (
	pollTime  = 5 * time.Millisecond
	pollBound = time.Minute
)

// poll repeats a request until it succeeds.
func poll(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, pollBound)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if pause.For(ctx, pollTime) != nil {
			return err
		}
	}
}
