package readpath

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// NamespacesAnnotation is where the metadata of a list names the namespaces of its view.
const NamespacesAnnotation = "keepwatch.io/namespaces"

// view is the part of a resource that a reader reads.
type view struct {
	watchcache.View
	annotates bool
}

// Within returns a reader of the part of the resource that a view has, which shares the encodings of s. Its lists are
// the union of the lists of the namespaces, and their continue tokens are bound to the set of namespaces: with another
// set they are answered with 410 Expired, and a token to continue with. If it annotates, lists in JSON have the
// namespaces in their metadata.
func (s *Reader) Within(v watchcache.View, annotates bool) *Reader {
	within := *s
	within.view = &view{v, annotates}
	return &within
}

// listOf returns the objects that a list asks for.
func (s *Reader) listOf(ctx context.Context, r readRequest) (*watchcache.ListResult, error) {
	if s.view == nil {
		return s.resource.Cache.List(ctx, r.key, r.options)
	}
	for {
		present, _, err := s.view.Namespaces()
		if err != nil {
			return nil, err
		}
		result, err := s.listWithin(ctx, r, present)
		if err != nil {
			return nil, err
		}
		now, _, err := s.view.Namespaces() // the list may have waited for its revision
		if err != nil {
			return nil, err
		}
		if now.Equal(present) {
			return result, nil
		}
	}
}

// listWithin returns the objects of some namespaces that a list asks for.
func (s *Reader) listWithin(ctx context.Context, r readRequest,
	present *watchcache.Namespaces) (_ *watchcache.ListResult, err error) {
	token := r.options.Predicate.Continue
	if token != "" {
		if r.options.Predicate.Continue, err = unbind(token, present); err != nil {
			return nil, err
		}
	}
	result, err := s.resource.Cache.ListIn(ctx, r.key, r.options, present)
	switch {
	case errors.Is(err, watchcache.ErrNotCached) && token != "" && r.options.Predicate.Continue != "":
		return nil, inconsistent(r.options.Predicate.Continue, present)
	case errors.Is(err, watchcache.ErrNotCached) && r.options.ResourceVersion != "":
		return nil, apierrors.NewResourceExpired("The provided resource version is too old for a personal view.")
	case err != nil:
		return nil, err
	}
	if s.view.annotates {
		result.Annotations = map[string]string{NamespacesAnnotation: strings.Join(present.Names(), ",")}
	}
	if result.Continue != "" {
		result.Continue = bind(result.Continue, present)
	}
	return result, nil
}

// watchOf begins the watch that a request asks for.
func (s *Reader) watchOf(ctx context.Context, r readRequest) (*watchcache.Watch, error) {
	if s.view == nil {
		return s.resource.Cache.Watch(ctx, r.key, r.options)
	}
	return s.resource.Cache.WatchIn(ctx, r.key, r.options, s.view)
}

// answerViewError returns the response to a failed list of a view that the API server could not answer: it refuses the
// list.
func (s *Reader) answerViewError(err error) http.HandlerFunc {
	if s.view == nil || !apierrors.IsResourceExpired(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTooManyRequests(err) {
		return nil
	}
	return s.errorHandler(err)
}

// refuseInView answers a request that would be delegated: the API server refuses it.
func (s *Reader) refuseInView(w http.ResponseWriter, q *http.Request, why reason) {
	err := error(apierrors.NewBadRequest("a personal view has no such answer: " + string(why)))
	if why == reasonState || why == reasonLate || why == reasonBusy {
		w.Header().Set("Retry-After", "1")
		err = apierrors.NewServiceUnavailable("the proxy cannot answer this personal view now")
	}
	s.errorHandler(err)(w, q)
}

// boundToken is a continue token of a view. No API server accepts it.
type boundToken struct {
	APIVersion string `json:"v"`
	Set        []byte `json:"set"` // the digest
	Of         string `json:"of"`  // the token of an API server's list
}

const boundVersion = "keepwatch.io/view/v1"

// IsBound reports whether a continue token is one of a view.
func IsBound(token string) bool {
	_, ok := parseBound(token)
	return ok
}

func parseBound(token string) (bound boundToken, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	return bound, err == nil && json.Unmarshal(text, &bound) == nil && bound.APIVersion == boundVersion
}

// bind binds a token to a set.
func bind(token string, to *watchcache.Namespaces) string {
	text, _ := json.Marshal(boundToken{boundVersion, to.Digest(), token}) // strings and bytes
	return base64.RawURLEncoding.EncodeToString(text)
}

// unbind returns the token that was bound to a set. Of another set, and of a list of everything, it returns Expired.
func unbind(token string, to *watchcache.Namespaces) (string, error) {
	bound, ok := parseBound(token)
	if !ok {
		return "", inconsistent(token, to)
	}
	if string(bound.Set) != string(to.Digest()) {
		return "", inconsistent(bound.Of, to)
	}
	return bound.Of, nil
}

// Unbound returns the error for the token of a view with which a list of everything is to be continued.
func Unbound(token string) error {
	bound, _ := parseBound(token)
	return expiredToken(newestAfter(bound.Of))
}

// inconsistent returns the error for a token that has expired. Its own token continues with the newest state of a set.
func inconsistent(token string, of *watchcache.Namespaces) error {
	next := newestAfter(token)
	if next != "" {
		next = bind(next, of)
	}
	return expiredToken(next)
}

// newestAfter returns the token that continues in the newest state behind the key of a token; nothing for a token that
// says no key.
func newestAfter(token string) string {
	const prefix = "/"
	key, _, err := apistorage.DecodeContinue(token, prefix)
	if err != nil {
		return ""
	}
	next, err := apistorage.EncodeContinue(key, prefix, -1)
	if err != nil {
		return ""
	}
	return next
}

// expiredToken returns the error that an API server answers an expired token with.
func expiredToken(next string) error {
	expired := apierrors.NewResourceExpired(
		"The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
			"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the " +
			"first chunk was returned and now may show up in the list.")
	expired.ErrStatus.ListMeta = metav1.ListMeta{Continue: next}
	return expired
}
