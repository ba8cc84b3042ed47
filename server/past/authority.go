package past

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

const (
	// decidedFor is how long an answer of the cluster is used, and how often it is asked about an open watch.
	decidedFor = 5 * time.Second
	// undecidedFor is how long a watch stays open that the cluster does not decide about.
	undecidedFor = time.Minute
	// reviewTimeout bounds one question to the cluster.
	reviewTimeout = 10 * time.Second
	// namespacesKnown bounds the namespaces that are remembered.
	namespacesKnown = 1000
	// clocksDiffer is by how much an object may seem to be older than its namespace: API servers have clocks of their
	// own, and times of creation have seconds.
	clocksDiffer = 10 * time.Second
)

// reviewRetries is how a review is repeated whose response is an error of the cluster.
var reviewRetries = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 3}

// authority is the live cluster, which decides who may read the past: by what the user may read now. It is safe for
// concurrent use.
type authority struct {
	users      authenticator.Request
	rights     authorizer.Authorizer
	client     kubernetes.Interface
	namespaces *cache.LRUExpireCache // name → liveNamespace
}

// liveNamespace is a namespace of the cluster, the zero value if it does not exist.
type liveNamespace struct {
	uid     keepwatch.UID
	created time.Time
}

func newAuthority(config *rest.Config) (*authority, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	a := &authority{client: client, namespaces: cache.NewLRUExpireCache(namespacesKnown)}
	a.users, _, err = authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff: &reviewRetries, CacheTTL: decidedFor,
	}.New()
	if err != nil {
		return nil, err
	}
	a.rights, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), WebhookRetryBackoff: &reviewRetries, AllowCacheTTL: decidedFor,
		DenyCacheTTL: decidedFor,
	}.New()
	return a, err
}

// user returns the user of a request's token.
func (a *authority) user(q *http.Request) (user.Info, error) {
	for name := range q.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return nil, statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
				"the past does not let users impersonate others: remove "+name)
		}
	}
	response, ok, err := a.users.AuthenticateRequest(q.Clone(q.Context())) // it removes the token
	switch {
	case err != nil && !ok && isRefused(err):
		return nil, unauthorizedBy()
	case err != nil:
		return nil, apierrors.NewServiceUnavailable("the cluster has not reviewed the token: " + err.Error())
	case !ok:
		return nil, unauthorizedBy()
	}
	return response.User, nil
}

// isRefused reports whether an error of an authenticator is the cluster's answer.
func isRefused(err error) bool { return strings.Contains(err.Error(), "invalid bearer token") }

func unauthorizedBy() error {
	return statusError(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"this server needs a bearer token of the cluster")
}

// allowed returns nil if a user may read what a request asks for, and the API's error if not. then is the time of the
// moment, zero if it is not known: a reader of a namespace that does not exist any more, or that was created after the
// moment, must be allowed to read in all namespaces.
func (a *authority) allowed(ctx context.Context, u user.Info, info *request.RequestInfo, then time.Time) error {
	attributes := authorizer.AttributesRecord{
		User: u, Verb: info.Verb, ResourceRequest: info.IsResourceRequest, Path: info.Path,
		APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name,
	}
	if info.Namespace != "" {
		live, err := a.namespace(ctx, info.Namespace)
		if err != nil {
			return unknownNamespace(info.Namespace, err)
		}
		if live.created.IsZero() || then.IsZero() || live.created.After(then) {
			attributes.Namespace = ""
		}
	}
	decision, reason, err := a.rights.Authorize(ctx, attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewServiceUnavailable("the cluster has not decided: " + err.Error())
	}
	return responsewriters.ForbiddenStatusError(attributes, reason)
}

func unknownNamespace(name string, err error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("whether the namespace %s exists is not known: %v", name, err))
}

// existedSince returns the time since when a namespace must exist whose present readers may read what it had at a time:
// that, or, if there are older objects, when the oldest was created. A history stores late what happened while its sync
// did not run, and has times of another clock: its time of a state does not prove that the namespace is the one of
// today.
func existedSince(then, oldest time.Time) time.Time {
	if since := oldest.Add(clocksDiffer); !oldest.IsZero() && since.Before(then) {
		return since
	}
	return then
}

// namespace returns a namespace of the cluster.
func (a *authority) namespace(ctx context.Context, name string) (live liveNamespace, err error) {
	if known, ok := a.namespaces.Get(name); ok {
		return known.(liveNamespace), nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	namespace, err := a.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		live = liveNamespace{keepwatch.UID(namespace.UID), namespace.CreationTimestamp.Time}
	case !apierrors.IsNotFound(err):
		return live, err
	}
	a.namespaces.Add(name, live, decidedFor)
	return live, nil
}

// follow asks again and again whether a watch may go on, and calls end when the token or the right is gone, or when the
// cluster has not decided for undecidedFor. It returns when ctx is done.
func (a *authority) follow(ctx context.Context, q *http.Request, info *request.RequestInfo, then time.Time,
	end func()) {
	decided := time.Now()
	ticker := time.NewTicker(decidedFor)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		u, err := a.user(q)
		if err == nil {
			err = a.allowed(ctx, u, info, then)
		}
		status, _ := errors.AsType[*apierrors.StatusError](err)
		switch {
		case err == nil:
			decided = time.Now()
		case status.Status().Code != http.StatusServiceUnavailable, time.Since(decided) > undecidedFor:
			end()
			return
		}
	}
}
