package readpath

import (
	"math"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metainternalversionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// reason says why a request is passed on. It is a label of a metric; empty is none.
type reason string

const (
	passVerb     reason = "verb"     // neither GET, LIST nor WATCH, or of no resource, or of a subresource
	passResource reason = "resource" // not one that has a watch cache
	passPath     reason = "path"     // a path that is none of the API server's routes, or is below /watch/
	passEncoding reason = "encoding" // YAML, CBOR, Tables with whole objects or none, pretty printing, other versions
	passInvalid  reason = "invalid"  // parameters that will be refused
	passOption   reason = "option"   // parameters that are rare
	passProtocol reason = "protocol" // WebSockets
	passState    reason = "state"    // a revision that is gone or to come, an unknown object, no watch cache yet
)

// query is a request that can be answered here.
type query struct {
	resource *Resource
	info     *request.RequestInfo
	form     form
	key      string
	options  apistorage.ListOptions
	timeout  time.Duration // of a watch; zero if not named, negative if it is over before it begins
}

// read reads what a request asks for, or tells why it is passed on.
func (r *Resource) read(q *http.Request, info *request.RequestInfo) (query, reason) {
	if !r.routed(info) {
		return query{}, passPath
	}
	switch info.Verb {
	case "get":
		return r.readGet(q, info)
	case "list", "watch":
		return r.readList(q, info)
	}
	return query{}, passVerb
}

// readGet reads a GET of one object, or tells why it is passed on.
func (r *Resource) readGet(q *http.Request, info *request.RequestInfo) (query, reason) {
	f, reason := r.negotiate(q, false)
	if reason != "" {
		return query{}, reason
	}
	values := q.URL.Query()
	if len(values["export"]) > 0 {
		return query{}, passOption
	}
	var options metav1.GetOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &options); err != nil {
		return query{}, passInvalid
	}
	key, ok := r.key(r.namespace(info), info.Name)
	if !ok {
		return query{}, passInvalid
	}
	return query{resource: r, info: info, form: f, key: key,
		options: apistorage.ListOptions{ResourceVersion: options.ResourceVersion, Predicate: apistorage.Everything}}, ""
}

// readList reads a LIST or a WATCH, or tells why it is passed on.
func (r *Resource) readList(q *http.Request, info *request.RequestInfo) (query, reason) {
	watch := info.Verb == "watch"
	f, reason := r.negotiate(q, !watch)
	if reason != "" {
		return query{}, reason
	}
	options, reason := r.listOptions(q, info)
	if reason != "" {
		return query{}, reason
	}
	if options.ShardSelector != "" {
		return query{}, passOption
	}
	if watch && wsstream.IsWebSocketRequest(q) {
		return query{}, passProtocol
	}
	out := query{resource: r, info: info, form: f}
	if options.TimeoutSeconds != nil {
		out.timeout = watchTimeout(*options.TimeoutSeconds)
	}
	var ok bool
	if out.key, out.options, ok = r.storageOptions(info, options); !ok {
		return query{}, passInvalid
	}
	if watch {
		out.options.SendInitialEvents = options.SendInitialEvents
		out.options.Predicate.AllowWatchBookmarks = options.AllowWatchBookmarks
		out.options.ResourceVersionMatch = ""
	}
	return out, ""
}

// longestWatch bounds timeoutSeconds, so that no deadline overflows.
const longestWatch = math.MaxInt64 / 2 / time.Second * time.Second

// watchTimeout returns how long a watch lasts. One of less than no time is over before it
// begins, as on an API server, however much less that is.
func watchTimeout(seconds int64) time.Duration {
	if seconds < 0 {
		return -time.Second
	}
	return time.Duration(min(seconds, int64(longestWatch/time.Second))) * time.Second
}

// listOptions decodes and checks the parameters as an API server does.
func (r *Resource) listOptions(q *http.Request, info *request.RequestInfo) (*internalversion.ListOptions, reason) {
	options := &internalversion.ListOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(q.URL.Query(), metav1.SchemeGroupVersion, options); err != nil {
		return nil, passInvalid
	}
	streaming := utilfeature.DefaultFeatureGate.Enabled(features.WatchList)
	internalversion.SetListOptionsDefaults(options, streaming)
	if errs := metainternalversionvalidation.ValidateListOptions(options, streaming); len(errs) > 0 {
		return nil, passInvalid
	}
	if options.FieldSelector != nil {
		selector, err := options.FieldSelector.Transform(r.fieldLabel)
		if err != nil {
			return nil, passInvalid
		}
		options.FieldSelector = selector
	}
	if info.Name == "" {
		return options, ""
	}
	if options.FieldSelector == nil || options.FieldSelector.Empty() {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", info.Name)
	} else if name, ok := options.FieldSelector.RequiresExactMatch("metadata.name"); !ok || name != info.Name {
		return nil, passInvalid
	}
	return options, ""
}

// storageOptions says what is asked of the watch cache: one object if the selector names
// it, one namespace if it names that.
func (r *Resource) storageOptions(info *request.RequestInfo, options *internalversion.ListOptions) (key string, out apistorage.ListOptions, ok bool) {
	label, field := options.LabelSelector, options.FieldSelector
	if label == nil {
		label = labels.Everything()
	}
	if field == nil {
		field = fields.Everything()
	}
	p := r.Predicate(label, field)
	if info.Verb == "list" { // a watch ignores both
		p.Limit, p.Continue = options.Limit, options.Continue // a token is not compatible with one object
	}
	namespace := r.namespace(info)
	if selected, ok := p.MatchesSingleNamespace(); ok && namespace == "" && r.Namespaced && len(validation.IsDNS1123Label(selected)) == 0 {
		namespace = selected
	}
	out = apistorage.ListOptions{
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: options.ResourceVersionMatch,
		Predicate:            p,
		Recursive:            true,
	}
	if name, ok := p.MatchesSingle(); ok {
		if key, ok := r.key(namespace, name); ok {
			out.Recursive = false
			return key, out, true
		}
	}
	key, ok = r.key(namespace, "")
	return key, out, ok
}
