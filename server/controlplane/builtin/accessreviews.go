package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func answerSelfAccess(ctx context.Context, rights Authorizer, requester user.Info, question runtime.Object) error {
	q := question.(*authorizationv1.SelfSubjectAccessReview)
	errs := append(validateAccess(q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes), validateEmpty(q.ObjectMeta)...)
	if len(errs) > 0 {
		return invalid(question, errs)
	}
	q.Status = decide(ctx, rights, requester, q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	return nil
}

func answerAccess(ctx context.Context, rights Authorizer, _ user.Info, question runtime.Object) error {
	q := question.(*authorizationv1.SubjectAccessReview)
	if errs := append(validateSubject(&q.Spec), validateEmpty(q.ObjectMeta)...); len(errs) > 0 {
		return invalid(question, errs)
	}
	q.Status = decideAbout(ctx, rights, &q.Spec)
	return nil
}

func answerLocalAccess(ctx context.Context, rights Authorizer, _ user.Info, question runtime.Object) error {
	q := question.(*authorizationv1.LocalSubjectAccessReview)
	errs := validateSubject(&q.Spec)
	besides := q.ObjectMeta
	if besides.Namespace = ""; len(validateEmpty(besides)) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), q.ObjectMeta, "must be empty except for namespace"))
	}
	if asked := q.Spec.ResourceAttributes; asked != nil && asked.Namespace != q.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), asked.Namespace,
			"must match metadata.namespace"))
	}
	if asked := q.Spec.NonResourceAttributes; asked != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), asked,
			"disallowed on this kind of request"))
	}
	if len(errs) > 0 {
		return invalid(question, errs)
	}
	if namespace := genericapirequest.NamespaceValue(ctx); namespace != q.Namespace {
		return apierrors.NewBadRequest("spec.resourceAttributes.namespace must match namespace: " + namespace)
	}
	q.Status = decideAbout(ctx, rights, &q.Spec)
	return nil
}

func invalid(question runtime.Object, errs field.ErrorList) error {
	kind := schema.GroupKind{Group: authorizationv1.GroupName, Kind: reflect.TypeOf(question).Elem().Name()}
	return apierrors.NewInvalid(kind, "", errs)
}

func validateEmpty(meta metav1.ObjectMeta) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "must be empty")}
}

func validateSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAccess(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User,
			"at least one of user or group must be specified"))
	}
	return errs
}

// validateAccess checks the request that a review asks about. Operators that are not known are no error: newer clients
// know more.
func validateAccess(resource *authorizationv1.ResourceAttributes,
	other *authorizationv1.NonResourceAttributes) (errs field.ErrorList) {
	if (resource == nil) == (other == nil) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), other,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if resource == nil {
		return errs
	}
	at := field.NewPath("spec.resourceAttributes")
	if s := resource.FieldSelector; s != nil {
		at := at.Child("fieldSelector")
		errs = append(errs, validateEither(at, s.RawSelector, len(s.Requirements))...)
		for i, r := range s.Requirements {
			errs = append(errs, metavalidation.ValidateFieldSelectorRequirement(r,
				metavalidation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				at.Child("requirements").Index(i))...)
		}
	}
	if s := resource.LabelSelector; s != nil {
		at := at.Child("labelSelector")
		errs = append(errs, validateEither(at, s.RawSelector, len(s.Requirements))...)
		for i, r := range s.Requirements {
			errs = append(errs, metavalidation.ValidateLabelSelectorRequirement(r,
				metavalidation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// validateEither checks that a selector is either a text or requirements.
func validateEither(at *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw,
			"may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"),
			fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}

// decideAbout authorizes a request of the subject that a question names.
func decideAbout(ctx context.Context, rights Authorizer,
	spec *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	subject := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		subject.Extra[key] = values
	}
	return decide(ctx, rights, subject, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// decide authorizes a resource request or a non-resource request.
func decide(ctx context.Context, rights Authorizer, subject user.Info, resource *authorizationv1.ResourceAttributes,
	other *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	request := authorizer.AttributesRecord{User: subject}
	if resource != nil {
		request.ResourceRequest = true
		request.Verb, request.Namespace, request.Name = resource.Verb, resource.Namespace, resource.Name
		request.APIGroup, request.APIVersion = resource.Group, cmp.Or(resource.Version, "*")
		request.Resource, request.Subresource = resource.Resource, resource.Subresource
		request.FieldSelectorRequirements, request.FieldSelectorParsingErr = fieldRequirements(resource.FieldSelector)
		request.LabelSelectorRequirements, request.LabelSelectorParsingErr = labelRequirements(resource.LabelSelector)
	} else {
		request.Verb, request.Path = other.Verb, other.Path
	}
	decision, why, err := rights.Authorize(ctx, request)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: why,
		EvaluationError: evaluationError(err, request),
	}
}

// evaluationError says what went wrong, and which selectors were not understood. What is left of these asks for more
// than the whole.
func evaluationError(err error, request authorizer.AttributesRecord) string {
	var all []string
	if err != nil {
		all = append(all, err.Error())
	}
	add := func(name string, kept int, err error) {
		switch {
		case err == nil:
		case kept > 0:
			all = append(all, "spec.resourceAttributes."+name+" partially ignored due to parse error")
		default:
			all = append(all, "spec.resourceAttributes."+name+" ignored due to parse error")
		}
	}
	add("fieldSelector", len(request.FieldSelectorRequirements), request.FieldSelectorParsingErr)
	add("labelSelector", len(request.LabelSelectorRequirements), request.LabelSelectorParsingErr)
	return strings.Join(all, "; ")
}

// fieldRequirements returns the requirements that are understood, and errors for the others.
func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	if s.RawSelector != "" {
		selector, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	var understood fields.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator, ok := map[metav1.FieldSelectorOperator]selection.Operator{
			metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}[r.Operator]
		if !ok || len(r.Values) != 1 {
			errs = append(errs, fmt.Errorf("%q of %d values is not supported", r.Operator, len(r.Values)))
			continue
		}
		understood = append(understood, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return understood, errors.Join(errs...)
}

// labelRequirements returns the requirements that are understood, and errors for the others.
func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	if s.RawSelector != "" {
		selector, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		requirements, _ := selector.Requirements()
		return requirements, nil
	}
	var understood labels.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator := map[metav1.LabelSelectorOperator]selection.Operator{metav1.LabelSelectorOpIn: selection.In,
			metav1.LabelSelectorOpNotIn: selection.NotIn, metav1.LabelSelectorOpExists: selection.Exists,
			metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist}[r.Operator]
		requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		understood = append(understood, *requirement)
	}
	return understood, errors.Join(errs...)
}
