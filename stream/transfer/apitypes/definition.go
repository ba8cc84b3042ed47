package apitypes

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/startup"
)

var (
	crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	apiServiceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1",
		Resource: "apiservices"}
)

// automanaged is the label of the APIServices that kube-apiserver itself makes, for types of its own and of
// CustomResourceDefinitions.
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// definition is what is known of a type's definition. The values are closed.
type definition uint8

const (
	// no permission, a server without definitions, or one of its own (an APIService) defines the type
	unknownDefinition definition = iota
	hasDefinition                // its CustomResourceDefinition exists
	noDefinition                 // it has no CustomResourceDefinition, and no other server has its group
)

// definitions reads the definitions of types.
type definitions struct {
	groups  rest.Interface
	objects metadata.Interface
}

// of returns what is known of the definition of a type, widgets.example.com for example.
func (d *definitions) of(ctx context.Context, resource string) (definition, error) {
	_, err := d.objects.Resource(crdResource).Get(ctx, resource, metav1.GetOptions{})
	switch {
	case err == nil:
		return hasDefinition, nil
	case apierrors.IsForbidden(err):
		return unknownDefinition, nil
	case !saysNotFound(err, resource):
		if group, failed := groupOf(ctx, d.groups, crdResource.Group); failed == nil && len(group.Versions) == 0 {
			return unknownDefinition, nil // a server without definitions
		}
		return unknownDefinition, startup.WithoutAddress(err)
	}
	_, group, _ := strings.Cut(resource, ".")
	aggregated, err := d.aggregated(ctx, group)
	switch {
	case apierrors.IsForbidden(err):
		return unknownDefinition, nil
	case err != nil || aggregated:
		return unknownDefinition, startup.WithoutAddress(err)
	}
	return noDefinition, nil
}

// saysNotFound reports whether the server says that it does not have an object. A 404 without a Status of the object
// may be that of a load balancer, or of a server that starts.
func saysNotFound(err error, name string) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// aggregated reports whether another server has a version of the group.
func (d *definitions) aggregated(ctx context.Context, group string) (bool, error) {
	services, err := d.objects.Resource(apiServiceResource).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		registration, err := groupOf(ctx, d.groups, apiServiceResource.Group)
		if err == nil && len(registration.Versions) > 0 {
			err = errors.New("the server does not show its APIServices")
		}
		return false, err // a server without aggregation has no such type
	} else if err != nil {
		return false, err
	}
	for _, s := range services.Items {
		if _, of, _ := strings.Cut(s.Name, "."); of == group && s.Labels[automanaged] == "" {
			return true, nil
		}
	}
	return false, nil
}
