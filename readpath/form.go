package readpath

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

// form is one of the encodings that objects are kept in.
type form uint8

const (
	plainJSON = form(iota)
	plainProtobuf
	metadataJSON
	metadataProtobuf
	tableJSON
)

func isProtobuf(f form) bool { return f == plainProtobuf || f == metadataProtobuf }
func isMetadata(f form) bool { return f == metadataJSON || f == metadataProtobuf }

// mediaType is a form's.
func mediaType(f form) string {
	if isProtobuf(f) {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// metadataVersion is the version of PartialObjectMetadata that is answered here.
var metadataVersion = metav1.SchemeGroupVersion

// negotiate finds the form that a client wants. Of lists it gets lists of metadata,
// of all else single objects of it.
func (r *Resource) negotiate(q *http.Request, list bool) (form, reason) {
	if !r.Dynamic && !literal(q) {
		return 0, passInvalid
	}
	options, info, err := negotiation.NegotiateOutputMediaType(q, r.Serializer, r)
	if err != nil {
		return 0, passInvalid
	}
	pretty := info.PrettySerializer != nil && info.Serializer == info.PrettySerializer
	if pretty || options.UseServerVersion != "" || options.Export || options.Profile != "" || len(options.Unrecognized) > 0 {
		return 0, passEncoding
	}
	var f form
	switch options.Accepted.MediaType {
	case runtime.ContentTypeJSON:
		f = plainJSON
	case runtime.ContentTypeProtobuf:
		f = plainProtobuf
	default:
		return 0, passEncoding
	}
	if options.Convert == nil {
		return f, ""
	}
	if *options.Convert == tableVersion.WithKind("Table") && f == plainJSON && r.Table != nil && ofMetadata(q) {
		return tableJSON, ""
	}
	wanted := "PartialObjectMetadata"
	if list {
		wanted += "List"
	}
	if *options.Convert != metadataVersion.WithKind(wanted) {
		return 0, passEncoding
	}
	return f + metadataJSON - plainJSON, ""
}

// ofMetadata reports whether the rows of a table are to have the metadata of their objects.
func ofMetadata(q *http.Request) bool {
	include := q.URL.Query()["includeObject"]
	return len(include) == 0 || len(include) == 1 && (include[0] == "" || include[0] == string(metav1.IncludeMetadata))
}

// literal reports whether a client accepts all or names a media type in full. The
// API server's routes of built-in kinds know no other wildcards than "*/*".
func literal(q *http.Request) bool {
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

// kind is what an object in a form calls itself.
func (r *Resource) kind(f form) schema.GroupVersionKind {
	if isMetadata(f) {
		return metadataVersion.WithKind("PartialObjectMetadata")
	}
	return r.Kind
}

// kindOfList is what a list in a form calls itself.
func (r *Resource) kindOfList(f form) schema.GroupVersionKind {
	if isMetadata(f) {
		return metadataVersion.WithKind("PartialObjectMetadataList")
	}
	return r.Kind.GroupVersion().WithKind(r.listKind())
}

// named reports whether the items of a list name their kind in a form.
func (r *Resource) named(f form) bool { return f == metadataJSON || f == plainJSON && r.Dynamic }
