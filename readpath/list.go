package readpath

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/watchcache"
)

const (
	// gzipFrom is the size from which on answers are compressed, as kube-apiserver's.
	gzipFrom = 128 << 10
	// chunk is about how much of an answer is put together before it is written.
	chunk = 256 << 10
)

// list prepares a LIST's answer. It is passed on if there is none here.
func (s *Reader) list(q *http.Request, asked query) (http.HandlerFunc, reason) {
	listing, err := s.Cache.List(q.Context(), asked.key, asked.options)
	if err != nil {
		return s.refuse(err, asked)
	}
	zipped := responsewriters.ContentEncodingSupported(q, features.APIResponseCompression) == "gzip"
	l := &list{Reader: s, listing: listing, items: items{asked.form, time.Now()}, demand: recurring}
	if zipped {
		l.demand = once
	}
	small, err := l.measureSmall()
	if err != nil {
		return nil, passState
	}
	if small {
		return l.plain, ""
	}
	return s.admitted(q, perList, func() (http.HandlerFunc, reason) {
		s.asked.note(asked.form, zipped, s.Asked)
		if zipped {
			return l.large(l.gzip, func([]byte) bool { return false })
		}
		return l.large(l.plain, func(item []byte) bool { return item != nil && asked.form != tableJSON })
	})
}

// admitted prepares an answer that holds n bytes, once there is room for them.
func (s *Reader) admitted(q *http.Request, n int64, prepare func() (http.HandlerFunc, reason)) (http.HandlerFunc, reason) {
	release, err := s.budget.lists.acquire(q.Context(), userOf(q.Context()), n)
	if errors.Is(err, errBusy) {
		s.budget.counts.busy.Inc()
		return s.fail(apierrors.NewTooManyRequests(err.Error(), 1)), ""
	}
	if err != nil {
		return func(http.ResponseWriter, *http.Request) {}, "" // the client is gone
	}
	answer, why := prepare()
	if why != "" {
		release()
		return nil, why
	}
	return func(w http.ResponseWriter, q *http.Request) {
		defer release()
		defer s.budget.counts.hold(n)()
		answer(w, q)
	}, ""
}

// userOf returns whose share of the buffers an answer counts for.
func userOf(ctx context.Context) string {
	if user, ok := request.UserFrom(ctx); ok {
		return user.GetName()
	}
	return ""
}

// list is one answer.
type list struct {
	*Reader
	listing  *watchcache.ListResult
	items    items
	demand   demand // for items: of what is compressed, blocks are what is asked for again
	envelope envelope
	size     int // of all items with what is between them, if known
	length   int // of the answer; zero if not known
}

// measureSmall reports whether the answer is too small to be compressed, or to hold much. It
// encodes no more than it takes to find that out; if it is small, the envelope and length are known.
func (l *list) measureSmall() (bool, error) {
	all, err := l.measure(func([]byte) bool { return l.size <= gzipFrom })
	if err != nil || !all {
		return false, err
	}
	err = l.enclose(true)
	return err == nil && l.length <= gzipFrom, err
}

// large prepares a large answer. Its length is known if all items were worth measuring: those of
// protobuf, where lengths stand in front, and those that are cached.
func (l *list) large(answer http.HandlerFunc, worth func(item []byte) bool) (http.HandlerFunc, reason) {
	known, err := true, error(nil)
	if isProtobuf(l.items.form) {
		err = l.measureAll()
	} else {
		known, err = l.measure(worth)
	}
	if err == nil {
		err = l.enclose(known)
	}
	if err != nil {
		return nil, passState
	}
	return answer, ""
}

// measureAll adds up all items, which are encoded on all cores.
func (l *list) measureAll() error {
	l.size = 0
	for items, err := range l.encoded() {
		if err != nil {
			return err
		}
		for _, item := range items {
			l.size += l.items.size(item, l.size == 0)
		}
	}
	return nil
}

// measure adds up the items as long as they are worth it, and reports whether it got to the end.
// An item that is not cached is nil, and encoded if it is worth it.
func (l *list) measure(worth func(item []byte) bool) (all bool, err error) {
	l.size = 0
	for o := range l.listing.All() {
		item := l.known(o, l.items.form, l.demand)
		if !worth(item) {
			return false, nil
		}
		if item == nil {
			if item, err = l.readItem(o, l.items.form, l.demand); err != nil {
				return false, err
			}
		}
		l.size += l.items.size(item, l.size == 0)
	}
	return true, nil
}

// enclose makes the envelope; the length is known if the items' is.
func (l *list) enclose(known bool) (err error) {
	if l.envelope, err = l.Reader.envelope(l.listing, l.items.form, l.size); err != nil {
		return err
	}
	l.length = 0
	if known {
		l.length = len(l.envelope.head) + l.size + len(l.envelope.tail)
	}
	return nil
}

// plain writes the answer as it is.
func (l *list) plain(w http.ResponseWriter, q *http.Request) {
	header := w.Header()
	header.Set("Content-Type", mediaType(l.items.form))
	if l.length > 0 {
		header.Set("Content-Length", strconv.Itoa(l.length))
	}
	w.WriteHeader(http.StatusOK)
	b := append(takeBuffer(), l.envelope.head...)
	defer func() { giveBuffer(b) }()
	first := true
	for items, err := range l.encoded() {
		if err != nil {
			panic(http.ErrAbortHandler) // half of the answer is out: it must not look whole
		}
		for _, item := range items {
			b, first = l.items.append(b, item, first), false
			if len(b) >= chunk {
				if _, err := w.Write(b); err != nil {
					return // the client is gone
				}
				b = b[:0]
			}
		}
	}
	_, _ = w.Write(append(b, l.envelope.tail...))
}

// encoded iterates over the items, by the run of objects.
func (l *list) encoded() iter.Seq2[[][]byte, error] {
	return ahead[[]keepwatch.Object, [][]byte]{
		encoders: l.budget.encoders,
		weigh:    sizeOf,
		ready: func(run []keepwatch.Object) ([][]byte, bool) {
			items := make([][]byte, len(run))
			for i, o := range run {
				if items[i] = l.known(o, l.items.form, l.demand); items[i] == nil {
					return nil, false
				}
			}
			return items, true
		},
		make: func(run []keepwatch.Object) (_ [][]byte, err error) {
			items := make([][]byte, len(run))
			for i, o := range run {
				if items[i], err = l.readItem(o, l.items.form, l.demand); err != nil {
					return nil, err
				}
			}
			return items, nil
		},
	}.all(l.runs())
}

// runs iterates over the objects by the run of about as many bytes as one is worth, on its own,
// to be encoded ahead.
func (l *list) runs() iter.Seq[[]keepwatch.Object] {
	return func(yield func([]keepwatch.Object) bool) {
		var run []keepwatch.Object
		left := runBytes
		for o := range l.listing.All() {
			run = append(run, o)
			if left -= sizeOf(run[len(run)-1:]); left > 0 {
				continue
			}
			if !yield(run) {
				return
			}
			run, left = make([]keepwatch.Object, 0, len(run)), runBytes
		}
		if len(run) > 0 {
			yield(run)
		}
	}
}

// sizeOf is how many bytes etcd keeps of objects.
func sizeOf(run []keepwatch.Object) (n int64) {
	for _, o := range run {
		if known, ok := o.(*watchcache.Object); ok {
			n += int64(known.Size())
		}
	}
	return n
}

// gzip writes the answer as one gzip member of blocks.
func (l *list) gzip(w http.ResponseWriter, q *http.Request) {
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

func (l *list) blocks(w io.Writer) error {
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
	for b, err := range l.compressedAhead() {
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if err := write(b); err != nil {
			return err
		}
	}
	if err := m.write(wrap(l.envelope.tail)); err != nil {
		return err
	}
	return m.close()
}

// compressedAhead iterates over the blocks: of the segments, or of what was selected.
func (l *list) compressedAhead() iter.Seq2[*block, error] {
	if len(l.listing.Segments) > 0 {
		return ahead[store.Segment, *block]{
			encoders: l.budget.encoders,
			weigh:    func(segment store.Segment) int64 { return sizeOf(slices.Collect(segment.All())) / usualRatio },
			ready:    func(segment store.Segment) (*block, bool) { return l.knownBlock(segment, l.items) },
			make:     func(segment store.Segment) (*block, error) { return l.compressed(segment, l.items) },
		}.all(slices.Values(l.listing.Segments))
	}
	return ahead[[]*watchcache.Object, *block]{
		encoders: l.budget.encoders,
		weigh:    func(run []*watchcache.Object) int64 { return sizeOf(slices.Collect(selected(run))) / usualRatio },
		ready:    func([]*watchcache.Object) (*block, bool) { return nil, false },
		make:     func(run []*watchcache.Object) (*block, error) { return l.deflate(selected(run), l.items) },
	}.all(slices.Chunk(l.listing.Selected, objectsPerBlock))
}

const (
	// objectsPerBlock is how many selected objects are compressed together: about as
	// many as a segment has.
	objectsPerBlock = 64
	// usualRatio is how much shorter than in etcd objects are when they are compressed.
	usualRatio = 4
)
