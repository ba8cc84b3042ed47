package builtin

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/tokens"
)

// kube-apiserver's bounds of a token's lifetime, in seconds.
const (
	defaultTokenSeconds = 60 * 60
	minTokenSeconds     = 10 * 60
	maxTokenSeconds     = 1 << 32
	// projectedTokenSeconds is the lifetime that marks the token of a pod's volume by default. It expires after
	// extendedTokenSeconds, and should have been replaced after the requested time.
	projectedTokenSeconds = 60*60 + 7
	extendedTokenSeconds  = 365 * 24 * 60 * 60
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// tokenREST serves serviceaccounts/token. Its rules and messages are kube-apiserver's.
type tokenREST struct {
	accounts, pods, secrets, nodes *genericregistry.Store
	issuer                         *tokens.Issuer
}

var (
	_ rest.NamedCreater                   = (*tokenREST)(nil)
	_ rest.GroupVersionKindProvider       = (*tokenREST)(nil)
	_ rest.SubresourceObjectMetaPreserver = (*tokenREST)(nil)
)

func newTokenREST(stores map[schema.GroupResource]*genericregistry.Store, issuer *tokens.Issuer) *tokenREST {
	return &tokenREST{
		stores[corev1.Resource("serviceaccounts")], stores[corev1.Resource("pods")],
		stores[corev1.Resource("secrets")], stores[corev1.Resource("nodes")], issuer,
	}
}

func (r *tokenREST) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy does nothing: the storages are the main resources'.
func (r *tokenREST) Destroy() {}

func (r *tokenREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return tokenRequestKind
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate is true: the UID of a request is a precondition.
func (r *tokenREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create returns the request with a token for the service account of a name. Nothing is stored: a dry run returns a
// valid token, too, as in kube-apiserver.
func (r *tokenREST) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	request := object.(*authenticationv1.TokenRequest)
	namespace := genericapirequest.NamespaceValue(ctx)
	if err := checkTokenMetadata(request, namespace, name); err != nil {
		return nil, err
	}
	found, err := r.accounts.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	account := found.(*corev1.ServiceAccount)
	if request.UID != "" && request.UID != account.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: tokenRequestKind.Group,
			Resource: tokenRequestKind.Kind}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID,
				account.UID))
	}
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = r.issuer.Audiences()
	}
	now := time.Now() // before the token's beginning, so that it does not expire before the status says
	request.Name, request.Namespace, request.UID = account.Name, account.Namespace, account.UID
	request.CreationTimestamp = metav1.NewTime(now)
	request.Status = authenticationv1.TokenRequestStatus{}
	if errs := validateTokenRequest(request); len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequestKind.GroupKind(), "", errs)
	}
	if validate != nil {
		if err := validate(ctx, request.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	bound, err := r.bound(ctx, account, request.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	text, err := r.issuer.Issue(account, request.Spec.Audiences, bound, r.lifetime(request.Spec, bound))
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("failed to generate token: %w", err))
	}
	request.Status = authenticationv1.TokenRequestStatus{
		Token: text, ExpirationTimestamp: metav1.NewTime(now.Add(seconds(*request.Spec.ExpirationSeconds))),
	}
	return request, nil
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// checkTokenMetadata returns an error for a name or a namespace that is not that of the URL.
func checkTokenMetadata(request *authenticationv1.TokenRequest, namespace, name string) error {
	at := field.NewPath("metadata")
	var wrong *field.Error
	switch {
	case request.Name != "" && request.Name != name:
		wrong = field.Invalid(at.Child("name"), request.Name, "must match the service account name if specified")
	case request.Namespace != "" && request.Namespace != namespace:
		wrong = field.Invalid(at.Child("namespace"), request.Namespace,
			"must match the service account namespace if specified")
	default:
		return nil
	}
	return apierrors.NewInvalid(tokenRequestKind.GroupKind(), name, field.ErrorList{wrong})
}

func validateTokenRequest(request *authenticationv1.TokenRequest) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	lifetime := *request.Spec.ExpirationSeconds // it has a default
	if lifetime < minTokenSeconds {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), lifetime,
			"may not specify a duration less than 10 minutes"))
	}
	if lifetime > maxTokenSeconds {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), lifetime,
			"may not specify a duration larger than 2^32 seconds"))
	}
	if len(request.Spec.Attestations) > 0 { // which only tokens of webhooks have, and these are not issued
		errs = append(errs, field.Invalid(at.Child("attestations"), request.Spec.Attestations,
			"attestations may only be specified with a webhook bound object reference"))
	}
	return errs
}

// lifetime returns how long a token is valid.
func (r *tokenREST) lifetime(spec authenticationv1.TokenRequestSpec, bound tokens.Bound) tokens.Lifetime {
	requested := *spec.ExpirationSeconds
	forServer := sets.New(r.issuer.Audiences()...).HasAll(spec.Audiences...)
	if bound.Pod != nil && requested == projectedTokenSeconds && forServer {
		return tokens.Lifetime{Valid: seconds(extendedTokenSeconds), Warn: seconds(requested)}
	}
	return tokens.Lifetime{Valid: seconds(requested)}
}

// bound returns the object that a token of an account is to be bound to, and a pod's node.
func (r *tokenREST) bound(ctx context.Context, account *corev1.ServiceAccount,
	ref *authenticationv1.BoundObjectReference) (tokens.Bound, error) {
	if ref == nil {
		return tokens.Bound{}, nil
	}
	var bound tokens.Bound
	var uid types.UID
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		found, err := get(ctx, r.pods, ref.Name)
		if err != nil {
			return bound, err
		}
		bound.Pod = found.(*corev1.Pod)
		uid = bound.Pod.UID
		if bound.Pod.Spec.ServiceAccountName != account.Name {
			return bound,
				apierrors.NewBadRequest(
					fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.",
						account.Name))
		}
		if bound.Node, err = r.nodeOf(ctx, bound.Pod); err != nil {
			return bound, err
		}
	case schema.GroupKind{Kind: "Node"}:
		found, err := get(ctx, r.nodes, ref.Name)
		if err != nil {
			return bound, err
		}
		bound.Node = found.(*corev1.Node)
		uid = bound.Node.UID
	case schema.GroupKind{Kind: "Secret"}:
		found, err := get(ctx, r.secrets, ref.Name)
		if err != nil {
			return bound, err
		}
		bound.Secret = found.(*corev1.Secret)
		uid = bound.Secret.UID
	default:
		return bound, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind.String()))
	}
	if ref.UID != "" && ref.UID != uid {
		return bound, apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return bound, nil
}

// get returns an object of another resource than the request's. An error names this resource.
func get(ctx context.Context, store *genericregistry.Store, name string) (runtime.Object, error) {
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIVersion: "v1", Resource: store.DefaultQualifiedResource.Resource, Name: name,
	})
	return store.Get(ctx, name, &metav1.GetOptions{})
}

// nodeOf returns the node of a pod; one that does not exist has a name and no UID.
func (r *tokenREST) nodeOf(ctx context.Context, pod *corev1.Pod) (*corev1.Node, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return nil, nil
	}
	found, err := get(ctx, r.nodes, name)
	switch {
	case apierrors.IsNotFound(err):
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	}
	return found.(*corev1.Node), nil
}
