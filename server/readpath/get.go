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
	var object []byte
	for o := range result.All() {
		if object, err = s.object(o, r.encoding, r.pretty); err != nil {
			return nil, reasonState
		}
	}
	if len(object) > gzipFrom && responsewriters.ContentEncodingSupported(q, features.APIResponseCompression) == "gzip" {
		return nil, reasonOption // objects are rarely so large
	}
	write := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType(r.encoding))
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(object) // it fails if the client is gone
	}
	if len(object) <= gzipFrom {
		return write, ""
	}
	return s.admit(q, int64(len(object)), func() (http.HandlerFunc, reason) { return write, "" })
}

// object returns the body of the response to a GET.
func (s *Reader) object(o keepwatch.Object, as encoding, pretty bool) ([]byte, error) {
	item, err := s.itemEncoding(o, as, singleRead)
	if err != nil {
		return nil, err
	}
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
