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
