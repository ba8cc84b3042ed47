package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
)

// resource is what the server says of a resource.
type resource struct {
	schema.GroupVersionResource
	verbatim.Layout
	listKind string
	protobuf bool   // the server writes the objects in protobuf, too
	warning  string // that the server sends with each response
}

// maxDescription bounds a response that describes a resource.
const maxDescription = 64 << 20

// describer asks the server what a resource is.
type describer struct {
	client *http.Client // with the proxy's identity
	server *url.URL
}

// describe returns what the server says of a resource. It fails if the resource can't be listed and watched,
// if the proxy may not list it, and if it belongs to an aggregated API.
func (d describer) describe(ctx context.Context, of schema.GroupVersionResource) (*resource, error) {
	r := &resource{GroupVersionResource: of}
	path := pathOf(of.GroupVersion())
	for _, learn := range []func(context.Context, string, *resource) error{d.belongs, d.discover, d.inspect, d.watch} {
		if err := learn(ctx, path, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// belongs fails if another server answers for the resource: that one may show its callers less than the permissions
// of the cluster say, and its revisions need not be comparable. A server without an aggregator answers all requests
// itself.
func (d describer) belongs(ctx context.Context, _ string, r *resource) error {
	name := r.Version + "." + r.Group
	body, _, err := d.get(ctx, "/apis/"+aggregation+"/v1/apiservices/"+name, nil)
	if refused, ok := errors.AsType[refusal](err); ok && refused.code == http.StatusNotFound {
		return d.answersAll(ctx, name, body)
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

// belongsEvery is how often the server is asked again who answers for a resource that is followed: an APIService can be
// changed, and then another server's objects would be shown to all whom the permissions of the cluster allow them.
const belongsEvery = 30 * time.Second

// belongsFor bounds the wait for its answer.
const belongsFor = 10 * time.Second

// awaitAggregated waits until the server says that a resource belongs to an aggregated API, which it returns as an
// error, or until ctx ends. It asks at an interval. Any other answer, and none, leave what the server has said before.
func (d describer) awaitAggregated(ctx context.Context, r *resource, every time.Duration) error {
	for {
		pause(ctx, every+rand.N(every/4)) // many resources are described together, when a proxy starts
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		asking, cancel := context.WithTimeout(ctx, belongsFor)
		err := d.belongs(asking, "", r)
		if cancel(); errors.Is(err, errAggregated) {
			return err
		}
	}
}

// pathOf returns the path of a version of a group.
func pathOf(version schema.GroupVersion) string {
	if version.Group == "" {
		return "/api/" + version.Version
	}
	return "/apis/" + version.Group + "/" + version.Version
}

// resources returns the resources of a version of a group.
func (d describer) resources(ctx context.Context, version schema.GroupVersion) ([]metav1.APIResource, error) {
	body, _, err := d.get(ctx, pathOf(version), nil)
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
func (d describer) discover(ctx context.Context, _ string, r *resource) error {
	all, err := d.resources(ctx, r.GroupVersion())
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
func (d describer) inspect(ctx context.Context, path string, r *resource) error {
	body, header, err := d.get(ctx, path+"/"+r.Resource, url.Values{"limit": {"1"}})
	if err != nil {
		return err
	}
	var list metav1.TypeMeta
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("a list of %s: %w", r.GroupVersionResource, err)
	}
	r.listKind = list.Kind
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
		r.warning = warnings[0].Text
	default:
		return fmt.Errorf("the server sends %d warnings with %s", len(warnings), r.GroupVersionResource)
	}
	return nil
}

// noObject selects no object: it can be no object's name.
const noObject = "keepwatch--"

// watch reads how the server writes bookmarks, by streaming lists of nothing, and whether it has protobuf.
func (d describer) watch(ctx context.Context, path string, r *resource) error {
	query := url.Values{
		"watch": {"1"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
		"allowWatchBookmarks": {"true"},
		"timeoutSeconds":      {"5"}, "fieldSelector": {"metadata.name=" + noObject},
	}
	r.ListEnds = map[verbatim.Encoding][]byte{}
	for _, accept := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON} {
		response, err := d.open(ctx, path+"/"+r.Resource, query, accept)
		if err != nil {
			return err
		}
		protobuf := strings.HasPrefix(response.Header.Get("Content-Type"), runtime.ContentTypeProtobuf)
		r.protobuf = r.protobuf || protobuf
		if response.StatusCode == http.StatusOK {
			r.ListEnds[verbatim.EncodingOf(protobuf)] = readBookmark(response.Body, protobuf)
		}
		_ = response.Body.Close() // the watch ends
	}
	return nil
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

// get returns the server's response to a GET in JSON.
func (d describer) get(ctx context.Context, path string, query url.Values) ([]byte, http.Header, error) {
	response, err := d.open(ctx, path, query, runtime.ContentTypeJSON)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDescription))
	if err == nil && response.StatusCode != http.StatusOK {
		err = refusal{path, response.StatusCode}
	}
	return body, response.Header, err
}

// open sends a GET. The caller closes the body.
func (d describer) open(ctx context.Context, path string, query url.Values, accept string) (*http.Response, error) {
	to := *d.server
	to.Path, to.RawQuery = joinPath(d.server.Path, path), query.Encode()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Accept", accept)
	return d.client.Do(q)
}

// aggregation is the group of the objects that say which servers answer for which groups.
const aggregation = "apiregistration.k8s.io"

// answersAll fails unless the server has no APIService of the name, as it says in body, or has no aggregator. Any other
// 404 proves nothing: it may be a load balancer's.
func (d describer) answersAll(ctx context.Context, name string, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Details != nil && status.Details.Name == name {
		return nil
	}
	body, _, err := d.get(ctx, "/apis", nil)
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

// answers reports whether the server has answered with this error what a resource is. Otherwise it is down, starts, or
// is too busy.
func answers(err error) bool {
	if refused, ok := errors.AsType[refusal](err); ok {
		return refused.code < http.StatusInternalServerError && refused.code != http.StatusTooManyRequests
	}
	_, isBroken := errors.AsType[net.Error](err)
	return !isBroken && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errUnclear) &&
		!errors.Is(err, access.ErrNotReady)
}

// refusal is a response that is not OK.
type refusal struct {
	path string
	code int
}

func (r refusal) Error() string {
	return fmt.Sprintf("%s: %d %s", r.path, r.code, http.StatusText(r.code))
}
