package readpath

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/storage"
)

const (
	// gzipFrom is the size from which on answers are compressed, as kube-apiserver's.
	gzipFrom = 128 << 10
	// chunk is about how much of an answer is put together before it is written.
	chunk = 256 << 10
)

// list prepares a LIST's answer. It is passed on if there is none here.
func (s *Reader) list(q *http.Request, asked query) (http.HandlerFunc, reason) {
	listing, err := s.Storage.List(q.Context(), asked.key, asked.options)
	if err != nil {
		return s.refuse(err, asked)
	}
	l := list{Reader: s, listing: listing, items: items{asked.form, time.Now()}}
	zipped := responsewriters.ContentEncodingSupported(q, features.APIResponseCompression) == "gzip"
	known, big, err := l.measure(zipped)
	if err != nil {
		return nil, passState
	}
	if l.envelope, err = s.envelope(listing, asked.form, l.size); err != nil {
		return nil, passState
	}
	if known {
		l.length = len(l.envelope.head) + l.size + len(l.envelope.tail)
		big = l.length > gzipFrom
	}
	if !big {
		return l.plain, ""
	}
	large := l.plain
	if zipped {
		large = l.gzip
	}
	return func(w http.ResponseWriter, q *http.Request) { l.inTurn(w, q, large) }, ""
}

// inTurn gives a large answer when there is room for it.
func (l list) inTurn(w http.ResponseWriter, q *http.Request, large http.HandlerFunc) {
	flow := ""
	if user, ok := request.UserFrom(q.Context()); ok {
		flow = user.GetName()
	}
	leave, err := l.budget.turns.take(q.Context(), flow)
	if errors.Is(err, errBusy) {
		busy.Inc()
		l.fail(apierrors.NewTooManyRequests(err.Error(), 1))(w, q)
		return
	}
	if err != nil {
		return // the client is gone
	}
	defer leave()
	large(w, q)
}

// list is one answer.
type list struct {
	*Reader
	listing  *storage.Listing
	items    items
	envelope envelope
	size     int // of all items with what is between them, if known
	length   int // of the answer; zero if not known
}

// measure adds up the items; whether what is known is big depends on what stands around
// them. Of JSON that is going to be compressed, or not all of
// which is encoded, and of tables it looks only as far as to know that it is big; protobuf
// has to know in any case.
func (l *list) measure(zipped bool) (known, big bool, err error) {
	f := l.items.form
	for o := range l.listing.All() {
		object, err := l.Storage.Read(o)
		if err != nil {
			return false, false, err
		}
		item := l.known(object, f)
		if l.size > gzipFrom && !isProtobuf(f) && (zipped || item == nil || f == tableJSON) {
			return false, true, nil
		}
		if item == nil {
			if item, err = l.item(object, f, recurring); err != nil {
				return false, false, err
			}
		}
		l.size += l.items.size(item, l.size == 0)
	}
	return true, false, nil
}

// plain writes the answer as it is.
func (l list) plain(w http.ResponseWriter, q *http.Request) {
	header := w.Header()
	header.Set("Content-Type", mediaType(l.items.form))
	if l.length > 0 {
		header.Set("Content-Length", strconv.Itoa(l.length))
	}
	w.WriteHeader(http.StatusOK)
	b := append(takeBuffer(), l.envelope.head...)
	defer func() { giveBuffer(b) }()
	first := true
	for o := range l.listing.All() {
		item, err := l.read(o)
		if err != nil {
			panic(http.ErrAbortHandler) // half of the answer is out: it must not look whole
		}
		b, first = l.items.append(b, item, first), false
		if len(b) >= chunk {
			if _, err := w.Write(b); err != nil {
				return // the client is gone
			}
			b = b[:0]
		}
	}
	_, _ = w.Write(append(b, l.envelope.tail...))
}

func (l list) read(o keepwatch.Object) ([]byte, error) {
	object, err := l.Storage.Read(o)
	if err != nil {
		return nil, err
	}
	return l.item(object, l.items.form, recurring)
}

// gzip writes the answer as one gzip member of blocks.
func (l list) gzip(w http.ResponseWriter, q *http.Request) {
	header := w.Header()
	header.Set("Content-Type", mediaType(l.items.form))
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	w.WriteHeader(http.StatusOK)
	out := &chunks{w: w, b: takeBuffer()}
	defer func() { giveBuffer(out.b) }()
	if err := l.blocks(out); err == nil {
		_ = out.flush()
	}
}

func (l list) blocks(w io.Writer) error {
	m, err := newMember(w)
	if err != nil {
		return err
	}
	if err := m.write(wrap(l.envelope.head)); err != nil {
		return err
	}
	between := stored(comma)
	first := true
	write := func(b *block) error {
		if !first && !isProtobuf(l.items.form) {
			if err := m.write(between); err != nil {
				return err
			}
		}
		first = false
		return m.write(b)
	}
	for _, segment := range l.listing.Segments {
		b, err := l.compressed(segment, l.items)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if err := write(b); err != nil {
			return err
		}
	}
	for rest := l.listing.Selected; len(rest) > 0; {
		n := min(len(rest), objectsPerBlock)
		b, err := l.deflate(selected(rest[:n]), l.items)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if err := write(b); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if err := m.write(wrap(l.envelope.tail)); err != nil {
		return err
	}
	return m.close()
}

// objectsPerBlock is how many selected objects are compressed together: about as
// many as a segment has.
const objectsPerBlock = 64
