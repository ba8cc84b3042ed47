package readpath

import (
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"

	"github.com/keepwatch/keepwatch"
)

// get returns the response to a GET, or the reason to delegate it.
func (s *Reader) get(q *http.Request, r readRequest) (http.HandlerFunc, reason) {
	result, err := s.resource.Cache.List(q.Context(), r.key, r.options)
	if err != nil {
		return s.answerError(err, r)
	}
	if result.Len() == 0 {
		return s.errorHandler(apierrors.NewNotFound(s.resource.Resource.GroupResource(), r.info.Name)), ""
	}
	var found keepwatch.Object
	for o := range result.All() {
		found = o
	}
	return s.getObject(q, r, found)
}

// getObject returns the response with an object. A large one is made once it is admitted: requests that wait hold no
// more than its item encoding, which they share. They read that once, since a second read would mark it used.
func (s *Reader) getObject(q *http.Request, r readRequest, o keepwatch.Object) (http.HandlerFunc, reason) {
	item, err := s.itemEncoding(o, r.encoding, singleRead)
	if err != nil {
		return nil, reasonState
	}
	gzip := responsewriters.ContentEncodingSupported(q, features.APIResponseCompression) == "gzip"
	if size := len(item); size > gzipFrom { // the object is larger
		if gzip {
			return nil, reasonOption // objects are rarely so large
		}
		if r.pretty {
			size *= 2 // about
		}
		return s.admit(q, int64(size), func() (http.HandlerFunc, reason) {
			object, err := s.object(o, item, r.encoding, r.pretty)
			if err != nil {
				return nil, reasonState
			}
			return objectWriter(object, r.encoding), ""
		})
	}
	object, err := s.object(o, item, r.encoding, r.pretty)
	switch {
	case err != nil:
		return nil, reasonState
	case len(object) <= gzipFrom:
		return objectWriter(object, r.encoding), ""
	case gzip:
		return nil, reasonOption
	}
	write := objectWriter(object, r.encoding)
	return s.admit(q, int64(len(object)), func() (http.HandlerFunc, reason) { return write, "" })
}

// objectWriter returns the response with the body of an object.
func objectWriter(object []byte, as encoding) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType(as))
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(object) // it fails if the client is gone
	}
}

// object returns the body of the response to a GET, given the item encoding of the object.
func (s *Reader) object(o keepwatch.Object, item []byte, as encoding, pretty bool) ([]byte, error) {
	if isTable(as) {
		table, err := s.resource.Table.appendTable(nil, item, o.Revision().String(), true, as)
		return append(table, '\n'), err
	}
	object := s.resource.appendObject(make([]byte, 0, len(item)+128), item, as)
	if pretty {
		return appendIndented(nil, object, 0), nil
	}
	if !isProtobuf(as) {
		object = append(object, '\n')
	}
	return object, nil
}
