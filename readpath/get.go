package readpath

import (
	"net/http"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"

	"github.com/keepwatch/keepwatch"
)

// get prepares a GET's answer. It is passed on if there is none here.
func (s *Reader) get(q *http.Request, asked query) (answer http.HandlerFunc, why reason) {
	listing, err := s.Cache.List(q.Context(), asked.key, asked.options)
	if err != nil {
		return s.refuse(err, asked)
	}
	if listing.Len() != 1 {
		return nil, passState
	}
	var object []byte
	for o := range listing.All() {
		if object, err = s.object(o, asked.form); err != nil {
			return nil, passState
		}
	}
	if len(object) > gzipFrom && responsewriters.ContentEncodingSupported(q, features.APIResponseCompression) == "gzip" {
		return nil, passOption // it is rarely that large
	}
	write := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType(asked.form))
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(object) // who has to know that it failed is gone
	}
	if len(object) <= gzipFrom {
		return write, ""
	}
	return s.admitted(q, int64(len(object)), func() (http.HandlerFunc, reason) { return write, "" })
}

// object is one object as the answer to a GET.
func (s *Reader) object(o keepwatch.Object, f form) ([]byte, error) {
	item, err := s.readItem(o, f, passing)
	if err != nil {
		return nil, err
	}
	if f == tableJSON {
		table, err := s.Table.appendTable(nil, item, o.Revision().String(), true)
		return append(table, '\n'), err
	}
	object := s.appendObject(make([]byte, 0, len(item)+128), item, f)
	if !isProtobuf(f) {
		object = append(object, '\n')
	}
	return object, nil
}
