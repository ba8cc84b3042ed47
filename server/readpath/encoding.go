package readpath

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// encoding is how an object is encoded, and how much of it. The values are closed.
type encoding uint8

const (
	objectJSON encoding = iota // the whole object
	objectProtobuf
	metadataJSON // PartialObjectMetadata
	metadataProtobuf
	// The rows of a Table in the version v1: with the metadata of their objects, without objects, and with whole objects.
	tableJSON
	tableAlone
	tableWhole
	// The same in the version v1beta1.
	tableJSONBeta
	tableAloneBeta
	tableWholeBeta
)

func isProtobuf(as encoding) bool { return as == objectProtobuf || as == metadataProtobuf }
func isMetadata(as encoding) bool { return as == metadataJSON || as == metadataProtobuf }
func isTable(as encoding) bool    { return as >= tableJSON }

// mediaType returns the media type of an encoding.
func mediaType(as encoding) string {
	if isProtobuf(as) {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// metadataVersion is the version of PartialObjectMetadata that the read path answers.
var metadataVersion = metav1.SchemeGroupVersion

// negotiate returns the encoding that a client accepts, or the reason to delegate the request. In a
// LIST, list is true: the client then asks for metadata as PartialObjectMetadataList, otherwise as
// PartialObjectMetadata. pretty is true if the client receives the JSON indented: it asks for that, or is a browser or
// curl.
func (r *Resource) negotiate(q *http.Request, list bool) (as encoding, pretty bool, _ reason) {
	if !r.Dynamic && !namesMediaType(q) {
		return 0, false, reasonInvalid
	}
	options, info, err := negotiation.NegotiateOutputMediaType(q, r.Serializer, restrictions{r.Dynamic})
	if err != nil {
		return 0, false, reasonInvalid
	}
	pretty = info.PrettySerializer != nil && info.Serializer == info.PrettySerializer
	as, why := r.accepted(q, options, list)
	if pretty && as != objectJSON && as != metadataJSON {
		why = reasonEncoding
	}
	return as, pretty, why
}

// accepted returns the encoding that negotiated options name.
func (r *Resource) accepted(q *http.Request, options negotiation.MediaTypeOptions, list bool) (encoding, reason) {
	if options.UseServerVersion != "" || options.Export || options.Profile != "" || len(options.Unrecognized) > 0 {
		return 0, reasonEncoding
	}
	var as encoding
	switch options.Accepted.MediaType {
	case runtime.ContentTypeJSON:
		as = objectJSON
	case runtime.ContentTypeProtobuf:
		as = objectProtobuf
	default:
		return 0, reasonEncoding
	}
	if options.Convert == nil {
		return as, ""
	}
	if options.Convert.Kind == "Table" && as == objectJSON && r.Table != nil {
		return tableOf(q, options.Convert.GroupVersion())
	}
	wanted := "PartialObjectMetadata"
	if list {
		wanted += "List"
	}
	if *options.Convert != metadataVersion.WithKind(wanted) {
		return 0, reasonEncoding
	}
	return as + metadataJSON - objectJSON, ""
}

// Form is what the objects of a response to a GET, LIST or WATCH look like.
type Form struct {
	Protobuf bool // whole objects or their metadata are encoded in protobuf, otherwise in JSON
	Table    bool // the response is a Table, in JSON
}

// Negotiate returns the form of the response to a request, of the encodings that a serializer has. dynamic is
// [Resource].Dynamic. ok is false if the response has another form, is indented, or is an error.
func Negotiate(
	q *http.Request, info *request.RequestInfo, serializer runtime.NegotiatedSerializer, dynamic bool,
) (form Form, ok bool) {
	r := Resource{Serializer: serializer, Dynamic: dynamic, Table: &Table{}}
	as, pretty, why := r.negotiate(q, info.Verb == "list")
	return Form{Protobuf: isProtobuf(as), Table: isTable(as)}, why == "" && !pretty
}

// tableOf returns the encoding of the Table that a request asks for in a version.
func tableOf(q *http.Request, version schema.GroupVersion) (as encoding, _ reason) {
	switch version {
	case metav1.SchemeGroupVersion:
		as = tableJSON
	case metav1beta1.SchemeGroupVersion:
		as = tableJSONBeta
	default:
		return 0, reasonEncoding
	}
	include := q.URL.Query()["includeObject"]
	if len(include) > 1 {
		return 0, reasonEncoding
	}
	switch metav1.IncludeObjectPolicy(strings.Join(include, "")) {
	case "", metav1.IncludeMetadata:
		return as, ""
	case metav1.IncludeNone:
		return as + tableAlone - tableJSON, ""
	case metav1.IncludeObject:
		return as + tableWhole - tableJSON, ""
	}
	return 0, reasonEncoding
}

// namesMediaType reports whether a client accepts everything or names a media type in full. The
// API server's routes of built-in kinds support no wildcard but "*/*".
func namesMediaType(q *http.Request) bool {
	accepted := q.Header.Get("Accept")
	if accepted == "" {
		return true
	}
	for clause := range strings.SplitSeq(accepted, ",") {
		media, _, _ := strings.Cut(clause, ";")
		switch strings.TrimSpace(media) {
		case "*/*", runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeYAML:
			return true
		}
	}
	return false
}

// kind returns the kind that an object names in an encoding.
func (r *Resource) kind(as encoding) schema.GroupVersionKind {
	if isMetadata(as) {
		return metadataVersion.WithKind("PartialObjectMetadata")
	}
	return r.Kind
}

// kindOfList returns the kind that a list names in an encoding.
func (r *Resource) kindOfList(as encoding) schema.GroupVersionKind {
	if isMetadata(as) {
		return metadataVersion.WithKind("PartialObjectMetadataList")
	}
	return r.Kind.GroupVersion().WithKind(r.listKind())
}

// itemsNameKind reports whether the items of a list name their kind in an encoding.
func (r *Resource) itemsNameKind(as encoding) bool {
	return as == metadataJSON || as == objectJSON && r.Dynamic
}

// restrictions implements negotiation.EndpointRestrictions as an API server does.
type restrictions struct {
	dynamic bool // see Resource.Dynamic
}

func (r restrictions) AllowsMediaTypeTransform(mediaType, subtype string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return !r.dynamic || subtype != "vnd.kubernetes.protobuf"
	}
	switch target.Kind {
	case "Table":
		return mediaType == "application" && (subtype == "json" || subtype == "yaml")
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

func (r restrictions) AllowsServerVersion(version string) bool { return version == "v1" }

func (r restrictions) AllowsStreamSchema(schema string) bool { return schema == "watch" }
