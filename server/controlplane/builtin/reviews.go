package builtin

import (
	"context"
	"reflect"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Authorizer decides whether a user may send a request, and lists the requests that a user may send.
type Authorizer interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// review is a resource that is not stored: a create sends a question, and returns the object with the
// answer in its status.
type review struct {
	gv       schema.GroupVersion
	resource string
	object   runtime.Object
	// namespaced is true for questions about one namespace.
	namespaced bool
	// answer sets the status of an object of this kind. requester is the user who sent it.
	answer func(ctx context.Context, rights Authorizer, requester user.Info, question runtime.Object) error
}

// reviews are the resources of kubectl auth, and of servers that delegate authorization to the API.
var reviews = []review{
	{authenticationv1.SchemeGroupVersion, "selfsubjectreviews", &authenticationv1.SelfSubjectReview{}, false, answerSelf},
	{authorizationv1.SchemeGroupVersion, "selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{}, false,
		answerSelfAccess},
	{authorizationv1.SchemeGroupVersion, "subjectaccessreviews", &authorizationv1.SubjectAccessReview{}, false,
		answerAccess},
	{authorizationv1.SchemeGroupVersion, "localsubjectaccessreviews", &authorizationv1.LocalSubjectAccessReview{}, true,
		answerLocalAccess},
	{authorizationv1.SchemeGroupVersion, "selfsubjectrulesreviews", &authorizationv1.SelfSubjectRulesReview{}, false,
		answerSelfRules},
}

// Reviews returns the resources of reviews, which store nothing.
func Reviews() []schema.GroupResource {
	resources := []schema.GroupResource{{Group: authenticationv1.GroupName, Resource: "tokenreviews"}}
	for _, question := range reviews {
		resources = append(resources, schema.GroupResource{Group: question.gv.Group, Resource: question.resource})
	}
	return resources
}

func answerSelf(_ context.Context, _ Authorizer, requester user.Info, question runtime.Object) error {
	q := question.(*authenticationv1.SelfSubjectReview)
	q.ObjectMeta = metav1.ObjectMeta{CreationTimestamp: metav1.Now()}
	q.Status.UserInfo = userInfo(requester)
	return nil
}

// userInfo returns a user as reviews show it.
func userInfo(u user.Info) authenticationv1.UserInfo {
	shown := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if shown.Extra == nil {
			shown.Extra = map[string]authenticationv1.ExtraValue{}
		}
		shown.Extra[key] = values
	}
	return shown
}

func answerSelfAccess(ctx context.Context, rights Authorizer, requester user.Info, question runtime.Object) error {
	q := question.(*authorizationv1.SelfSubjectAccessReview)
	var err error
	q.Status, err = decide(ctx, rights, requester, q, q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	return err
}

func answerAccess(ctx context.Context, rights Authorizer, _ user.Info, question runtime.Object) error {
	q := question.(*authorizationv1.SubjectAccessReview)
	var err error
	q.Status, err = decideAbout(ctx, rights, q, q.Spec)
	return err
}

func answerLocalAccess(ctx context.Context, rights Authorizer, _ user.Info, question runtime.Object) error {
	q := question.(*authorizationv1.LocalSubjectAccessReview)
	if asked := q.Spec.ResourceAttributes; asked != nil && asked.Namespace != q.Namespace {
		return invalid(question, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), asked.Namespace,
			"must match metadata.namespace"))
	}
	if asked := q.Spec.NonResourceAttributes; asked != nil {
		return invalid(question, field.Invalid(field.NewPath("spec.nonResourceAttributes"), asked,
			"disallowed on this kind of request"))
	}
	if namespace := genericapirequest.NamespaceValue(ctx); namespace != q.Namespace {
		return apierrors.NewBadRequest("spec.resourceAttributes.namespace must match namespace: " + namespace)
	}
	var err error
	q.Status, err = decideAbout(ctx, rights, q, q.Spec)
	return err
}

// decideAbout authorizes a request of the subject that a question names.
func decideAbout(ctx context.Context, rights Authorizer, question runtime.Object,
	spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	if spec.User == "" && len(spec.Groups) == 0 {
		return authorizationv1.SubjectAccessReviewStatus{}, invalid(question, field.Required(field.NewPath("spec", "user"),
			"name a user, groups, or both"))
	}
	subject := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		subject.Extra[key] = values
	}
	return decide(ctx, rights, subject, question, spec.ResourceAttributes, spec.NonResourceAttributes)
}

func answerSelfRules(ctx context.Context, rights Authorizer, requester user.Info, question runtime.Object) error {
	q := question.(*authorizationv1.SelfSubjectRulesReview)
	if q.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	resources, others, incomplete, err := rights.RulesFor(ctx, requester, q.Spec.Namespace)
	q.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{},
		NonResourceRules: []authorizationv1.NonResourceRule{},
		Incomplete:       incomplete,
		EvaluationError:  message(err),
	}
	for _, rule := range resources {
		q.Status.ResourceRules = append(q.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(),
			ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range others {
		q.Status.NonResourceRules = append(q.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs(),
		})
	}
	return nil
}

// decide authorizes a resource request or a non-resource request.
func decide(ctx context.Context, rights Authorizer, subject user.Info, question runtime.Object,
	resource *authorizationv1.ResourceAttributes,
	other *authorizationv1.NonResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
	if (resource == nil) == (other == nil) {
		return authorizationv1.SubjectAccessReviewStatus{},
			invalid(question, field.Invalid(field.NewPath("spec", "resourceAttributes"), resource,
				"give either this or nonResourceAttributes"))
	}
	request := authorizer.AttributesRecord{User: subject}
	if resource != nil {
		request.ResourceRequest = true
		request.Verb, request.Namespace, request.Name = resource.Verb, resource.Namespace, resource.Name
		request.APIGroup, request.APIVersion = resource.Group, resource.Version
		request.Resource, request.Subresource = resource.Resource, resource.Subresource
	} else {
		request.Verb, request.Path = other.Verb, other.Path
	}
	decision, why, err := rights.Authorize(ctx, request)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: why,
		EvaluationError: message(err),
	}, nil
}

func invalid(question runtime.Object, what *field.Error) error {
	kind := schema.GroupKind{Group: authorizationv1.GroupName, Kind: reflect.TypeOf(question).Elem().Name()}
	return apierrors.NewInvalid(kind, "", field.ErrorList{what})
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// kindName returns the API kind, which is the name of the Go type.
func (r *review) kindName() string { return reflect.TypeOf(r.object).Elem().Name() }

// reviewREST serves a review, which can only be created.
type reviewREST struct {
	review
	rights Authorizer
}

func (r *reviewREST) New() runtime.Object     { return r.object.DeepCopyObject() }
func (r *reviewREST) Destroy()                {}
func (r *reviewREST) NamespaceScoped() bool   { return r.namespaced }
func (r *reviewREST) GetSingularName() string { return strings.ToLower(r.kindName()) }

func (r *reviewREST) Create(ctx context.Context, question runtime.Object, validate rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	requester, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	if validate != nil {
		if err := validate(ctx, question.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.answer(ctx, r.rights, requester, question); err != nil {
		return nil, err
	}
	return question, nil
}
