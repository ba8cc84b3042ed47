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
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/sharding"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// reason is why a request is delegated. It is a label of a metric. An empty one is none.
type reason string

const (
	reasonAudit    reason = "audit"    // the audit log wants the objects of the response
	reasonVerb     reason = "verb"     // neither GET, LIST nor WATCH, or for no resource, or for a subresource
	reasonResource reason = "resource" // without a watch cache
	reasonPath     reason = "path"     // no route of the API server, or one below /watch/
	reasonEncoding reason = "encoding" // YAML, CBOR, indented watches and Tables, other versions
	reasonInvalid  reason = "invalid"  // parameters that the API server rejects
	reasonOption   reason = "option"   // rare parameters
	reasonProtocol reason = "protocol" // WebSockets
	reasonBusy     reason = "busy"     // too many large responses are being written
	// a past or future revision, an unreadable object, a watch cache that has not started
	reasonState reason = "state"
	reasonLate  reason = "late" // a consistent read that the watch cache did not catch up for within 3 seconds
)

// readRequest is a GET, LIST or WATCH as the watch cache understands it.
type readRequest struct {
	info     *request.RequestInfo
	encoding encoding
	pretty   bool // indented JSON
	key      string
	options  apistorage.ListOptions
	timeout  time.Duration // of a watch; zero if the client named none, negative if the watch ends at once
}

// parse parses a request, or returns the reason to delegate it.
func (r *Resource) parse(q *http.Request, info *request.RequestInfo) (readRequest, reason) {
	if !r.hasRoute(info) {
		return readRequest{}, reasonPath
	}
	switch info.Verb {
	case "get":
		return r.parseGet(q, info)
	case "list", "watch":
		return r.parseList(q, info)
	}
	return readRequest{}, reasonVerb
}

// parseGet parses a GET of one object.
func (r *Resource) parseGet(q *http.Request, info *request.RequestInfo) (readRequest, reason) {
	as, pretty, reason := r.negotiate(q, false)
	if reason != "" {
		return readRequest{}, reason
	}
	values := q.URL.Query()
	if len(values["export"]) > 0 {
		return readRequest{}, reasonOption
	}
	var options metav1.GetOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion,
		&options); err != nil {
		return readRequest{}, reasonInvalid
	}
	key, ok := r.key(r.namespace(info), info.Name)
	if !ok {
		return readRequest{}, reasonInvalid
	}
	return readRequest{info: info, encoding: as, pretty: pretty, key: key,
		options: apistorage.ListOptions{ResourceVersion: options.ResourceVersion, Predicate: apistorage.Everything}}, ""
}

// parseList parses a LIST or a WATCH.
func (r *Resource) parseList(q *http.Request, info *request.RequestInfo) (readRequest, reason) {
	watch := info.Verb == "watch"
	as, pretty, reason := r.negotiate(q, !watch)
	if reason != "" {
		return readRequest{}, reason
	}
	if watch && pretty {
		return readRequest{}, reasonEncoding
	}
	options, reason := r.listOptions(q, info)
	if reason != "" {
		return readRequest{}, reason
	}
	if watch && wsstream.IsWebSocketRequest(q) {
		return readRequest{}, reasonProtocol
	}
	parsed := readRequest{info: info, encoding: as, pretty: pretty}
	if options.TimeoutSeconds != nil {
		parsed.timeout = watchTimeout(*options.TimeoutSeconds)
	}
	var ok bool
	if parsed.key, parsed.options, ok = r.storageOptions(info, options); !ok {
		return readRequest{}, reasonInvalid
	}
	if parsed.options.Predicate.ShardSelector, ok = r.shardSelector(options); !ok {
		return readRequest{}, reasonInvalid
	}
	if watch {
		parsed.options.SendInitialEvents = options.SendInitialEvents
		parsed.options.Predicate.AllowWatchBookmarks = options.AllowWatchBookmarks
		parsed.options.ResourceVersionMatch = ""
	}
	return parsed, ""
}

// shardSelector returns the shard that a client asks for, nil if none or if the watch cache knows no shards: the
// parameter has no meaning then. It reports false for a selector that an API server rejects.
func (r *Resource) shardSelector(options *internalversion.ListOptions) (apisharding.Selector, bool) {
	if options.ShardSelector == "" || !r.Cache.Sharded() {
		return nil, true
	}
	selector, err := sharding.Parse(options.ShardSelector)
	return selector, err == nil
}

// longestWatch bounds timeoutSeconds, so that no deadline overflows.
const longestWatch = math.MaxInt64 / 2 / time.Second * time.Second

// watchTimeout returns how long a watch lasts. With any negative timeout it ends at once, as on an API
// server.
func watchTimeout(seconds int64) time.Duration {
	if seconds < 0 {
		return -time.Second
	}
	return time.Duration(min(seconds, int64(longestWatch/time.Second))) * time.Second
}

// listOptions decodes and validates the parameters as an API server does.
func (r *Resource) listOptions(q *http.Request, info *request.RequestInfo) (*internalversion.ListOptions, reason) {
	options := &internalversion.ListOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(q.URL.Query(), metav1.SchemeGroupVersion,
		options); err != nil {
		return nil, reasonInvalid
	}
	streaming := utilfeature.DefaultFeatureGate.Enabled(features.WatchList)
	internalversion.SetListOptionsDefaults(options, streaming)
	if errs := metainternalversionvalidation.ValidateListOptions(options, streaming); len(errs) > 0 {
		return nil, reasonInvalid
	}
	if options.FieldSelector != nil {
		selector, err := options.FieldSelector.Transform(r.fieldLabel)
		if err != nil {
			return nil, reasonInvalid
		}
		options.FieldSelector = selector
	}
	if info.Name == "" {
		return options, ""
	}
	if options.FieldSelector == nil || options.FieldSelector.Empty() {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", info.Name)
	} else if name, ok := options.FieldSelector.RequiresExactMatch("metadata.name"); !ok || name != info.Name {
		return nil, reasonInvalid
	}
	return options, ""
}

// storageOptions returns the key and the options for the watch cache: of one object, or of one
// namespace, if the field selector requires it.
func (r *Resource) storageOptions(info *request.RequestInfo,
	options *internalversion.ListOptions) (key string, out apistorage.ListOptions, ok bool) {
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
	namespace, name := r.narrowed(r.namespace(info), p)
	out = apistorage.ListOptions{
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: options.ResourceVersionMatch,
		Predicate:            p,
		Recursive:            name == "",
	}
	key, ok = r.key(namespace, name)
	return key, out, ok
}

// Narrowed returns the namespace of the objects that a request in a namespace selects, empty for all of them, and the
// name of the only one, empty if there may be several. What no object can have narrows nothing: all are looked at.
func (r *Reader) Narrowed(namespace string, p apistorage.SelectionPredicate) (_, name string) {
	return r.resource.narrowed(namespace, p)
}

func (r *Resource) narrowed(namespace string, p apistorage.SelectionPredicate) (_, name string) {
	if selected, ok := p.MatchesSingleNamespace(); ok && namespace == "" && r.Namespaced &&
		len(validation.IsDNS1123Label(selected)) == 0 {
		namespace = selected
	}
	if one, ok := p.MatchesSingle(); ok {
		if _, ok := r.key(namespace, one); ok {
			name = one
		}
	}
	return namespace, name
}
