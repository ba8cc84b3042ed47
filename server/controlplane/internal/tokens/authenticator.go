package tokens

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
)

// Getter returns the newest state of an object of the core group, or an error of the API.
type Getter func(ctx context.Context, resource, namespace, name string) (metav1.Object, error)

// Authenticator returns an authenticator of tokens of service accounts whose objects get returns. It has no opinion
// about tokens that name other issuers. Errors say why a token is not valid, and don't contain it.
func (i *Issuer) Authenticator(get Getter) authenticator.Token { return &tokenAuthenticator{i, get} }

type tokenAuthenticator struct {
	*Issuer
	get Getter
}

func (a *tokenAuthenticator) AuthenticateToken(ctx context.Context,
	text string) (*authenticator.Response, bool, error) {
	if !a.namesIssuer(text) {
		return nil, false, nil
	}
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return nil, false, nil // of somebody else, or damaged: the error could contain parts of it
	}
	var public jwt.Claims
	var private privateClaims
	if err := a.verify(token, &public, &private); err != nil {
		return nil, false, err
	}
	if !slices.Contains(a.names, public.Issuer) {
		return nil, false, fmt.Errorf("token issuer %q is invalid", public.Issuer)
	}
	audiences, err := a.audiences(ctx, authenticator.Audiences(public.Audience))
	if err != nil {
		return nil, false, err
	}
	now := time.Now()
	if err := validateTime(public, now); err != nil {
		return nil, false, err
	}
	if err := a.validateObjects(ctx, private.Kubernetes, now.Add(-jwt.DefaultLeeway)); err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: userOf(private.Kubernetes, public.ID).UserInfo(), Audiences: audiences}, true, nil
}

// namesIssuer reports whether a token, whose signature is not verified, names this issuer.
func (a *tokenAuthenticator) namesIssuer(text string) bool {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var unverified struct {
		Issuer string `json:"iss"`
	}
	return json.Unmarshal(payload, &unverified) == nil && slices.Contains(a.names, unverified.Issuer)
}

// verify reads the claims of a token that one of the keys has signed.
func (a *tokenAuthenticator) verify(token *jwt.JSONWebToken, claims ...any) error {
	var id string
	for _, header := range token.Headers {
		if id = header.KeyID; id != "" {
			break
		}
	}
	var errs []error
	for _, key := range a.keys {
		if id != "" && id != key.id {
			continue
		}
		err := token.Claims(key.key, claims...)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return errors.New("invalid signature, no keys found")
	}
	return utilerrors.NewAggregate(errs)
}

// audiences returns those of a token that the request is for: the ones in ctx, or else the API server's.
func (a *tokenAuthenticator) audiences(ctx context.Context,
	token authenticator.Audiences) (authenticator.Audiences, error) {
	if len(token) == 0 {
		token = a.Audiences()
	}
	requested, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		requested = a.Audiences()
	}
	both := token.Intersect(requested)
	if len(both) == 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", token, requested)
	}
	return both, nil
}

// validateTime tolerates a minute, for clocks that differ.
func validateTime(claims jwt.Claims, now time.Time) error {
	switch err := claims.Validate(jwt.Expected{Time: now}); err {
	case nil:
		return nil
	case jwt.ErrExpired:
		return errors.New("service account token has expired")
	case jwt.ErrNotValidYet:
		return errors.New("service account token is not valid yet")
	case jwt.ErrIssuedInTheFuture:
		return errors.New("service account token is issued in the future")
	default: // the other checks are not requested
		return errors.New("service account token claims could not be validated due to unexpected validation error")
	}
}

// errInvalidated is the reason of a token whose bound object is gone.
var errInvalidated = errors.New("service account token has been invalidated")

// validateObjects checks that the service account and the bound object exist, and that their deletion did not begin
// before since.
func (a *tokenAuthenticator) validateObjects(ctx context.Context, claims kubernetesClaims, since time.Time) error {
	account, err := a.current(ctx, "serviceaccounts", claims.Namespace, claims.Account.Name)
	if err != nil {
		return err
	}
	if uid := string(account.GetUID()); uid != claims.Account.UID {
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", uid, claims.Account.UID)
	}
	if deletedBefore(account, since) {
		return fmt.Errorf("service account %s/%s has been deleted", claims.Namespace, claims.Account.Name)
	}
	node := claims.Node
	if claims.Pod != nil {
		node = nil // for information: the token is bound to the pod
	}
	for _, bound := range []struct {
		*object
		resource, namespace, kind string
	}{
		{claims.Secret, "secrets", claims.Namespace, "secret"},
		{claims.Pod, "pods", claims.Namespace, "pod"},
		{node, "nodes", "", "node"},
	} {
		if bound.object == nil {
			continue
		}
		found, err := a.current(ctx, bound.resource, bound.namespace, bound.Name)
		if err != nil {
			return errInvalidated
		}
		if uid := string(found.GetUID()); uid != bound.UID {
			return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", bound.kind, uid, bound.kind,
				bound.UID)
		}
		if deletedBefore(found, since) {
			return errInvalidated
		}
	}
	return nil
}

// current returns the newest state of an object. It logs an error of the storage, since the client sees only that the
// token was refused.
func (a *tokenAuthenticator) current(ctx context.Context, resource, namespace, name string) (metav1.Object, error) {
	if name == "" {
		return nil, errors.New("resource name may not be empty") // as kube-apiserver's client of itself says
	}
	found, err := a.get(ctx, resource, namespace, name)
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		utilruntime.HandleErrorWithContext(ctx, err,
			"A service account token was refused because an object could not be read",
			"resource", resource, "namespace", namespace, "name", name)
	}
	return found, err
}

func deletedBefore(o metav1.Object, since time.Time) bool {
	at := o.GetDeletionTimestamp()
	return at != nil && at.Time.Before(since)
}

// userOf returns the user of a token.
func userOf(claims kubernetesClaims, id string) *serviceaccount.ServiceAccountInfo {
	user := &serviceaccount.ServiceAccountInfo{
		Namespace: claims.Namespace, Name: claims.Account.Name, UID: claims.Account.UID,
		CredentialID: tokenjwt.CredentialIDForJTI(id),
	}
	if claims.Pod != nil {
		user.PodName, user.PodUID = claims.Pod.Name, claims.Pod.UID
	}
	if claims.Node != nil {
		user.NodeName, user.NodeUID = claims.Node.Name, claims.Node.UID
	}
	return user
}
