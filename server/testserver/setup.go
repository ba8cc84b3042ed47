package testserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/keepwatch/keepwatch/internal/pause"
)

const (
	// servedTimeout bounds the wait until a definition's resources are served, which takes some milliseconds.
	servedTimeout = time.Minute
	servedPoll    = 5 * time.Millisecond
)

// setUp creates what the options of a server name.
func setUp(ctx context.Context, config *rest.Config, o options) error {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, files := range o.crds {
		found, err := definitionsIn(files)
		if err != nil {
			return fmt.Errorf("read CustomResourceDefinitions: %w", err)
		}
		if len(found) == 0 {
			return errors.New("CRDs: there is no CustomResourceDefinition in the files that end in .yaml, .yml or .json")
		}
		definitions = append(definitions, found...)
	}
	if len(definitions)+len(o.objects) == 0 {
		return nil
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return err
	}
	crds, err := apiextensions.NewForConfigAndClient(config, client)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		if _, err := crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the CustomResourceDefinition %s: %w", d.Name, err)
		}
	}
	for _, d := range definitions {
		if err := waitServed(ctx, objects, d); err != nil {
			return err
		}
	}
	mapper, err := discover(ctx, discovery.NewDiscoveryClient(crds.ApiextensionsV1().RESTClient()), definitions)
	if err != nil {
		return err
	}
	for _, object := range o.objects {
		if err := create(ctx, objects, mapper, object); err != nil {
			return err
		}
	}
	return nil
}

// waitServed waits until the server answers lists of a definition's resources.
func waitServed(ctx context.Context, client dynamic.Interface, d *apiextensionsv1.CustomResourceDefinition) error {
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	for _, version := range d.Spec.Versions {
		if !version.Served {
			continue
		}
		resource := client.Resource(schema.GroupVersionResource{Group: d.Spec.Group, Version: version.Name,
			Resource: d.Spec.Names.Plural})
		for {
			_, err := resource.List(ctx, metav1.ListOptions{Limit: 1})
			if err == nil {
				break
			}
			if pause.For(ctx, servedPoll) != nil {
				return fmt.Errorf("%s in version %s is not served: %w", d.Name, version.Name, err)
			}
		}
	}
	return nil
}

// discover returns the kinds that the server has, when those of the definitions are among them: discovery is later than
// the first list by some moments, in which a client's mapper may find a group without its version.
func discover(ctx context.Context, client *discovery.DiscoveryClient,
	definitions []*apiextensionsv1.CustomResourceDefinition) (meta.RESTMapper, error) {
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	for {
		kinds, err := restmapper.GetAPIGroupResources(client)
		mapper := restmapper.NewDiscoveryRESTMapper(kinds)
		if err == nil {
			err = hasKinds(mapper, definitions)
		}
		if err == nil {
			return mapper, nil
		}
		if pause.For(ctx, servedPoll) != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
	}
}

func hasKinds(mapper meta.RESTMapper, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	for _, d := range definitions {
		for _, version := range d.Spec.Versions {
			if !version.Served {
				continue
			}
			if _, err := mapper.RESTMapping(schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind},
				version.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// create creates an object, and writes its status if it has one.
func create(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, object runtime.Object) error {
	o, err := toUnstructured(object)
	if err != nil {
		return err
	}
	kind := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("create %s %s: %w", kind.Kind, o.GetName(), err)
	}
	resource := dynamic.ResourceInterface(client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	created, err := resource.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create %s %s: %w", kind.Kind, o.GetName(), err)
	}
	status, ok := o.Object["status"].(map[string]any)
	if !ok || len(status) == 0 {
		return nil
	}
	created.Object["status"] = status
	if _, err := resource.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of %s %s: %w", kind.Kind, o.GetName(), err)
	}
	return nil
}

// toUnstructured returns a copy of an object, with the kind that client-go's scheme has for its type if it names none.
func toUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	if o, ok := object.(*unstructured.Unstructured); ok {
		return o.DeepCopy(), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{Object: content}
	if o.GroupVersionKind().Empty() {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return nil, fmt.Errorf("the kind of a %T is not known: set its apiVersion and kind: %w", object, err)
		}
		o.SetGroupVersionKind(kinds[0])
	}
	return o, nil
}
