package readpath

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/features"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// gzipFrom is the size from which on responses are compressed, as in kube-apiserver.
const gzipFrom = 128 << 10

// list returns the response to a LIST, or the reason to delegate it.
func (s *Reader) list(q *http.Request, r readRequest) (http.HandlerFunc, reason) {
	result, err := s.listOf(q.Context(), r)
	if err != nil {
		if response := s.answerViewError(err); response != nil {
			return response, ""
		}
		return s.answerError(err, r)
	}
	gzip := responsewriters.ContentEncodingSupported(q, features.APIResponseCompression) == "gzip"
	l := &listResponse{Reader: s, result: result, body: listBody{r.encoding, r.pretty, s.resource.Table.now()},
		use: listRead}
	if gzip || r.pretty {
		l.use = blockInput // people read a list once
	}
	small, err := l.measureSmall()
	if err != nil {
		return nil, reasonState
	}
	if small {
		return l.writeIdentity, ""
	}
	return s.admit(q, listBufferSize, func() (http.HandlerFunc, reason) {
		continued := r.options.Predicate.Continue != ""
		if l.use = s.listUse(r.encoding, result.Revision, continued, l.use); l.use != onlyRead && !r.pretty {
			s.listings.report(r.encoding, gzip, s.resource.ListEncodingUsed)
		}
		if !l.encodable() {
			return nil, reasonState
		}
		if err := l.measureLarge(gzip); err != nil {
			return nil, reasonState
		}
		if gzip {
			return l.writeGzip, ""
		}
		return l.writeIdentity, ""
	})
}

// encodable reports whether the objects can be encoded of which it is known that they once could not be: the
// response would end within its body.
func (l *listResponse) encodable() bool {
	for o := range l.resource.Cache.Unreadable(l.result) {
		if _, err := l.itemEncoding(o, l.body.encoding, l.use); err != nil {
			return false
		}
	}
	return true
}

// listResponse is the response to a LIST: a head, the body, and a tail.
type listResponse struct {
	*Reader
	result        *watchcache.ListResult
	body          listBody
	use           use // of item encodings
	head, tail    []byte
	bodySize      int // if measured
	contentLength int // of the whole response; zero if unknown
}
