package discovery

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
)

// Resource is what the server says of a resource.
type Resource struct {
	schema.GroupVersionResource
	verbatim.Layout
	ListKind string
	Protobuf bool   // the server writes the objects in protobuf, too
	Warning  string // that the server sends with each response
}

// Describe returns what the server says of a resource. It fails if the resource can't be listed and watched,
// if the proxy may not list it, and if it belongs to an aggregated API.
func (s Server) Describe(ctx context.Context, of schema.GroupVersionResource) (*Resource, error) {
	r := &Resource{GroupVersionResource: of}
	path := PathOf(of.GroupVersion())
	for _, learn := range []func(context.Context, string, *Resource) error{s.belongs, s.discover, s.inspect, s.watch} {
		if err := learn(ctx, path, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// belongs fails if another server answers for the resource: that one may show its callers less than the permissions
// of the cluster say, and its revisions need not be comparable. A server without an aggregator answers all requests
// itself.
func (s Server) belongs(ctx context.Context, _ string, r *Resource) error {
	name := r.Version + "." + r.Group
	body, _, err := s.getJSON(ctx, "/apis/"+aggregation+"/v1/apiservices/"+name, nil)
	if refused, ok := errors.AsType[Refusal](err); ok && refused.Code == http.StatusNotFound {
		return s.answersAll(ctx, name, body)
	}
	if err != nil {
		return fmt.Errorf("who answers for %s: %w", r.GroupVersion(), err)
	}
	var registered struct{ Spec struct{ Service *struct{} } }
	if err := json.Unmarshal(body, &registered); err != nil {
		return fmt.Errorf("who answers for %s: %w", r.GroupVersion(), err)
	}
	if registered.Spec.Service != nil {
		return fmt.Errorf("%s %w", r.GroupVersion(), errAggregated)
	}
	return nil
}

// errUnclear is why it is not known who answers for a resource.
var errUnclear = errors.New("the API server is not ready")

// errAggregated is why a resource is left to the server that another one answers for. It completes a sentence.
var errAggregated = errors.New("is an aggregated API")

// BelongsEvery is how often the server is asked again who answers for a resource that is followed: an APIService can be
// changed, and then another server's objects would be shown to all whom the permissions of the cluster allow them.
const BelongsEvery = 30 * time.Second

// belongsFor bounds the wait for its answer.
const belongsFor = 10 * time.Second

// AwaitChange waits until the server says that a resource belongs to an aggregated API, describes it in another way, or
// no longer as one that can be followed, which it returns as an error, or until ctx ends. It asks who answers for the
// resource at an interval, and for all when relisted receives: the definition of a custom resource may have changed, or
// the version of the server. That the resource cannot be followed counts when the server repeats it: one that starts
// denies what it will allow. Any other answer, and none, leave what the server has said before.
func (s Server) AwaitChange(ctx context.Context, r *Resource, every time.Duration, relisted <-chan struct{}) error {
	for described, denied := true, false; ; {
		tick := time.NewTimer(every + rand.N(every/4)) // many resources are described together, when a proxy starts
		select {
		case <-tick.C:
		case <-relisted:
			described = false
		case <-ctx.Done():
		}
		if tick.Stop(); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if described {
			asking, cancel := context.WithTimeout(ctx, belongsFor)
			err = s.belongs(asking, "", r)
			cancel()
		} else {
			var now *Resource
			if now, err = s.Describe(ctx, r.GroupVersionResource); err == nil && !now.equal(r) {
				return ErrRedescribed
			}
			described = err == nil
			isDenied := err != nil && IsAnswer(err)
			if isDenied && denied {
				return err
			}
			denied = isDenied
		}
		if errors.Is(err, errAggregated) {
			return err
		}
	}
}

// ErrRedescribed is why a resource is described anew.
var ErrRedescribed = errors.New("the server describes the resource in another way")

// equal reports whether two descriptions differ in nothing but the bookmarks, which have revisions.
func (r *Resource) equal(other *Resource) bool {
	a, b := *r, *other
	a.ListEnds, b.ListEnds = nil, nil
	return reflect.DeepEqual(a, b)
}

// PathOf returns the path of a version of a group.
func PathOf(version schema.GroupVersion) string {
	if version.Group == "" {
		return "/api/" + version.Version
	}
	return "/apis/" + version.Group + "/" + version.Version
}

// resources returns the resources of a version of a group.
func (s Server) resources(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	body, _, err := s.getJSON(ctx, PathOf(version), nil)
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the description of %s: %w", version, err)
	}
	return list.APIResources, nil
}

// discover reads the kind and the scope.
func (s Server) discover(ctx context.Context, _ string, r *Resource) error {
	all, err := s.resources(ctx, r.GroupVersion())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(known metav1.APIResource) bool { return known.Name == r.Resource })
	if i < 0 {
		return notServed(r.GroupVersionResource)
	}
	known := all[i]
	for _, verb := range []string{"get", "list", "watch"} {
		if !slices.Contains(known.Verbs, verb) {
			return fmt.Errorf("the server has no %s of %s", verb, r.GroupVersionResource)
		}
	}
	r.Kind, r.Namespaced = r.GroupVersion().WithKind(known.Kind), known.Namespaced
	return nil
}

// inspect reads how the server writes a list: a built-in kind names its kind first, a custom resource has its
// members in alphabetical order.
func (s Server) inspect(ctx context.Context, path string, r *Resource) error {
	body, header, err := s.getJSON(ctx, path+"/"+r.Resource, url.Values{"limit": {"1"}})
	if err != nil {
		return err
	}
	var list metav1.TypeMeta
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("a list of %s: %w", r.GroupVersionResource, err)
	}
	r.ListKind = list.Kind
	switch {
	case bytes.HasPrefix(body, []byte(`{"kind":`)):
	case bytes.HasPrefix(body, []byte(`{"apiVersion":`)):
		r.Dynamic = true
	default:
		return fmt.Errorf("a list of %s begins in an unknown way", r.GroupVersionResource)
	}
	warnings, _ := utilnet.ParseWarningHeaders(header.Values("Warning"))
	switch len(warnings) {
	case 0:
	case 1:
		r.Warning = warnings[0].Text
	default:
		return fmt.Errorf("the server sends %d warnings with %s", len(warnings), r.GroupVersionResource)
	}
	return nil
}

// noObject selects no object: it can be no object's name.
const noObject = "keepwatch--"

// watch reads how the server writes bookmarks, by streaming lists of nothing, and whether it has protobuf.
func (s Server) watch(ctx context.Context, path string, r *Resource) error {
	query := url.Values{
		"watch": {"1"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
		"allowWatchBookmarks": {"true"},
		"timeoutSeconds":      {"5"}, "fieldSelector": {"metadata.name=" + noObject},
	}
	r.ListEnds = map[verbatim.Encoding][]byte{}
	for _, protobuf := range []bool{false, true} {
		if err := s.watchIn(ctx, path+"/"+r.Resource, query, protobuf, r); err != nil {
			return err
		}
	}
	return nil
}

// watchIn reads the bookmark in one encoding. The server may answer in JSON if it has no protobuf. A server without
// streaming lists refuses the request, in an encoding that it has. One that is busy or ends, or allows no watch, says
// nothing about encodings.
func (s Server) watchIn(ctx context.Context, path string, query url.Values, protobuf bool, r *Resource) error {
	ctx, cancel := context.WithTimeout(ctx, watchFor)
	defer cancel() // the watch ends
	accept := runtime.ContentTypeJSON
	if protobuf {
		accept = runtime.ContentTypeProtobuf + "," + accept
	}
	response, err := s.open(ctx, path, query, accept)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch refused := (Refusal{path, response.StatusCode}); refused.Code {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return refused
	default:
		if !IsAnswer(refused) {
			return refused
		}
	}
	protobuf = strings.HasPrefix(response.Header.Get("Content-Type"), runtime.ContentTypeProtobuf)
	r.Protobuf = r.Protobuf || protobuf
	if response.StatusCode == http.StatusOK {
		r.ListEnds[verbatim.EncodingOf(protobuf)] = readBookmark(response.Body, protobuf)
	}
	return ctx.Err() // nothing was learned of a server that did not end its answer
}

// readBookmark returns the object of the first event of a watch if that is a bookmark, or nil.
func readBookmark(body io.Reader, protobuf bool) []byte {
	body = io.LimitReader(body, maxDescription)
	if protobuf {
		return readProtobufBookmark(body)
	}
	var event struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.NewDecoder(body).Decode(&event); err != nil || event.Type != string(watch.Bookmark) {
		return nil
	}
	return event.Object
}

func readProtobufBookmark(body io.Reader) []byte {
	var size [4]byte
	if _, err := io.ReadFull(body, size[:]); err != nil {
		return nil
	}
	frame, err := io.ReadAll(io.LimitReader(body, int64(binary.BigEndian.Uint32(size[:]))))
	if err != nil {
		return nil
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil || event.Type != string(watch.Bookmark) {
		return nil
	}
	var object runtime.Unknown
	envelope, ok := bytes.CutPrefix(event.Object.Raw, []byte("k8s\x00"))
	if err := object.Unmarshal(envelope); !ok || err != nil {
		return nil
	}
	return object.Raw
}

// aggregation is the group of the objects that say which servers answer for which groups.
const aggregation = "apiregistration.k8s.io"

// answersAll fails unless the server has no APIService of the name, as it says in body, or has no aggregator. Any other
// 404 proves nothing: it may be a load balancer's.
func (s Server) answersAll(ctx context.Context, name string, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Details != nil && status.Details.Name == name {
		return nil
	}
	body, _, err := s.getJSON(ctx, "/apis", nil)
	if err != nil {
		return err
	}
	var all metav1.APIGroupList
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("the groups of the server: %w", err)
	}
	if slices.ContainsFunc(all.Groups, func(g metav1.APIGroup) bool { return g.Name == aggregation }) {
		return fmt.Errorf("%w: it has the group %s, and does not say whether it has the APIService %s", errUnclear,
			aggregation, name)
	}
	return nil
}
