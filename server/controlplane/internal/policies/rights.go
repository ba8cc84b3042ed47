package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
)

// rights decides whether the author of a policy or a binding may read its parameters: the server reads them in their
// place.
type rights struct {
	authorizer authorizer.Authorizer
	client     kubernetes.Interface
	mapper     meta.RESTMapper
}

// check returns an error for parameters that the author may not read. A reference that an update leaves as it was is
// not checked again. old is nil in a create.
func (r rights) check(ctx context.Context, author user.Info, spec, old any, at *field.Path) field.ErrorList {
	if slices.Contains(author.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	kind, ref, policy := parametersOf(spec)
	oldKind, oldRef, oldPolicy := parametersOf(old)
	switch {
	case kind != nil && !equality.Semantic.DeepEqual(kind, oldKind):
		if err := r.mayReadKind(ctx, author, kind); err != nil {
			return field.ErrorList{field.Forbidden(at.Child("paramKind"), err.Error())}
		}
	case ref != nil && !(equality.Semantic.DeepEqual(ref, oldRef) && policy == oldPolicy):
		_, mutating := spec.(*admissionregistrationv1.MutatingAdmissionPolicyBindingSpec)
		if err := r.mayReadRef(ctx, author, ref, policy, mutating); err != nil {
			return field.ErrorList{field.Forbidden(at.Child("paramRef"), err.Error())}
		}
	}
	return nil
}

// parametersOf returns the kind of the parameters of a policy, or the reference to them of a binding to a policy.
func parametersOf(spec any) (*admissionregistrationv1.ParamKind, *admissionregistrationv1.ParamRef, string) {
	switch s := spec.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicySpec:
		return s.ParamKind, nil, ""
	case *admissionregistrationv1.MutatingAdmissionPolicySpec:
		return s.ParamKind, nil, ""
	case *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec:
		return nil, s.ParamRef, s.PolicyName
	case *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec:
		return nil, s.ParamRef, s.PolicyName
	}
	return nil, nil, ""
}

func (r rights) mayReadKind(ctx context.Context, author user.Info, kind *admissionregistrationv1.ParamKind) error {
	resource, _ := r.resourceOf(kind)
	allowed, err := r.allows(ctx, author, "get", resource, "*", "*")
	if err == nil && !allowed {
		err = fmt.Errorf(
			`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, author,
			kind.Kind, kind.APIVersion)
	}
	return err
}

func (r rights) mayReadRef(ctx context.Context, author user.Info, ref *admissionregistrationv1.ParamRef, policy string,
	mutating bool) error {
	verb := "get"
	if ref.Name == "" {
		verb = "list"
	}
	everything := schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}
	resource, problem := everything, ""
	switch kind, err := r.kindOf(ctx, policy, mutating); {
	case err != nil:
		problem = "get policy " + policy
	case kind != nil:
		if resource, err = r.resourceOf(kind); err != nil {
			problem = fmt.Sprintf("resolve paramKind %v", kind)
		}
	}
	allowed, err := r.allows(ctx, author, verb, resource, ref.Namespace, ref.Name)
	switch {
	case err != nil || allowed:
		return err
	case problem != "":
		return fmt.Errorf(
			`unable to %s to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`, problem, author, verb)
	}
	return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, author, verb)
}

// kindOf returns the kind of a policy's parameters, or nil if it has none.
func (r rights) kindOf(ctx context.Context, policy string, mutating bool) (*admissionregistrationv1.ParamKind, error) {
	registrations := r.client.AdmissionregistrationV1()
	if mutating {
		found, err := registrations.MutatingAdmissionPolicies().Get(ctx, policy, metav1.GetOptions{})
		return found.Spec.ParamKind, err
	}
	found, err := registrations.ValidatingAdmissionPolicies().Get(ctx, policy, metav1.GetOptions{})
	return found.Spec.ParamKind, err
}

var errUnknownKind = errors.New("no such kind")

// resourceOf returns the resource of a kind. With an error, it is the smallest set of resources that has it.
func (r rights) resourceOf(kind *admissionregistrationv1.ParamKind) (schema.GroupVersionResource, error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}, err
	}
	mapping, err := r.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind.Kind}, gv.Version)
	if err != nil {
		return gv.WithResource("*"), errUnknownKind
	}
	return mapping.Resource, nil
}

func (r rights) allows(ctx context.Context, author user.Info, verb string, resource schema.GroupVersionResource,
	namespace, name string) (bool, error) {
	decision, _, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: author, Verb: verb, ResourceRequest: true, Namespace: namespace, Name: name,
		APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource,
	})
	return decision == authorizer.DecisionAllow, err
}
