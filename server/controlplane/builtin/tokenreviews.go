package builtin

import (
	"context"
	"errors"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/tokens"
)

// Identities authenticates requests, and issues the tokens of service accounts.
type Identities struct {
	// Authenticator is the server's. Its errors say why a credential is refused.
	Authenticator authenticator.Request
	Issuer        *tokens.Issuer
}

// tokenReviewREST serves tokenreviews, which ask whose token one is. They are not stored.
type tokenReviewREST struct{ Identities }

func (r *tokenReviewREST) New() runtime.Object     { return &authenticationv1.TokenReview{} }
func (r *tokenReviewREST) Destroy()                {}
func (r *tokenReviewREST) NamespaceScoped() bool   { return false }
func (r *tokenReviewREST) GetSingularName() string { return "tokenreview" }

// Create returns the review with the user of the token, if it is valid for one of the audiences.
func (r *tokenReviewREST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	review := object.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if validate != nil {
		if err := validate(ctx, review.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	audiences := authenticator.Audiences(review.Spec.Audiences)
	if len(audiences) == 0 {
		audiences = r.Issuer.Audiences()
	}
	request, err := http.NewRequestWithContext(authenticator.WithAudiences(ctx, audiences), http.MethodGet, "/", nil)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	request.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	response, ok, err := r.Authenticator.AuthenticateRequest(request)
	review.Status.Authenticated = ok
	review.Status.Error = message(err)
	if response == nil || response.User == nil {
		return review, nil
	}
	if len(audiences.Intersect(response.Audiences)) == 0 {
		return nil, apierrors.NewInternalError(errors.New("error validating audiences"))
	}
	review.Status.User = userInfo(response.User)
	review.Status.Audiences = response.Audiences
	return review, nil
}
