package readpath

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// objectsPerBlock is how many selected objects are compressed together: about as many as a
	// segment has.
	objectsPerBlock = 64
	// compressionRatio is about how much shorter compressed objects are than in the source.
	compressionRatio = 4
)

// writeIdentity writes the response without compression.
func (l *listResponse) writeIdentity(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	header.Set("Content-Type", mediaType(l.body.encoding))
	if l.contentLength > 0 {
		header.Set("Content-Length", strconv.Itoa(l.contentLength))
	}
	w.WriteHeader(http.StatusOK)
	b := append(getBuffer(), l.head...)
	defer func() { putBuffer(b) }()
	first := true
	for part, err := range l.encodedItems() {
		if err != nil {
			l.abort(err)
		}
		for _, item := range part.items {
			if len(b) >= chunkSize || len(b)+len(item) > maxBuffered { // a list's buffer grows with a larger object only
				if _, err := w.Write(b); err != nil {
					return // the client is gone
				}
				b = b[:0]
			}
			b, first = l.body.append(b, item, first), false
		}
		part.release()
	}
	_, _ = w.Write(append(b, l.tail...))
}

// abort ends a response of which a part is sent: the client must notice that the rest is missing. Later lists
// of the object are delegated.
func (l *listResponse) abort(err error) {
	if of := (*itemError)(nil); errors.As(err, &of) {
		if o, ok := of.object.(*watchcache.Object); ok {
			o.Unencodable(of.err)
		}
	}
	panic(http.ErrAbortHandler)
}

// writeGzip writes the response as one gzip member.
func (l *listResponse) writeGzip(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	header.Set("Content-Type", mediaType(l.body.encoding))
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	w.WriteHeader(http.StatusOK)
	out := &chunkWriter{w: w, b: getBuffer()}
	defer func() { putBuffer(out.b) }()
	if err := l.writeBlocks(out); err == nil {
		_ = out.flush()
	}
}

// writeBlocks writes the blocks of the head, the body and the tail.
func (l *listResponse) writeBlocks(w io.Writer) error {
	m, err := newGzipMember(w)
	if err != nil {
		return err
	}
	if err := m.write(edgeBlock(l.head)); err != nil {
		return err
	}
	separator, first := stored(comma), true
	for b, err := range l.encodedBlocks() {
		if err != nil {
			l.abort(err)
		}
		if !first && !isProtobuf(l.body.encoding) {
			if err := m.write(separator); err != nil {
				return err
			}
		}
		first = false
		if err := m.write(b); err != nil {
			return err
		}
	}
	if err := m.write(edgeBlock(l.tail)); err != nil {
		return err
	}
	return m.close()
}

// encodedItems iterates over the item encodings, by the part. It encodes those that are not cached on
// all cores.
func (l *listResponse) encodedItems() iter.Seq2[encodedPart, error] {
	return pipeline[[]keepwatch.Object, encodedPart]{
		slots: l.budget.encoderSlots,
		size:  sourceBytes,
		cached: func(part []keepwatch.Object) (encodedPart, bool) {
			items := make([][]byte, len(part))
			for i, o := range part {
				if items[i] = l.cachedItem(o, l.body.encoding, l.use); items[i] == nil {
					return encodedPart{}, false
				}
			}
			return encodedPart{items: items}, true
		},
		encode: func(part []keepwatch.Object) (_ encodedPart, err error) {
			if l.use == onlyRead {
				return l.encodeOnce(part)
			}
			items := make([][]byte, len(part))
			for i, o := range part {
				if items[i], err = l.listItem(o, l.body.encoding, l.use); err != nil {
					return encodedPart{}, err
				}
			}
			return encodedPart{items: items}, nil
		},
	}.run(l.parts())
}

// encodedPart is the item encodings of a part. Those that are read once are in one buffer.
type encodedPart struct {
	items  [][]byte
	buffer *[]byte // nil if they are cached
}

// partBuffers are the buffers of parts that are read once. An object may be larger than a part of many cores.
var (
	partBuffers    = sync.Pool{New: func() any { return new(make([]byte, 0, partBufferSize)) }}
	partBufferSize = max(2*bytesPerPart, bufferedObject)
)

// bufferedObject is the size of an object up to which its buffer is used again.
const bufferedObject = 64 << 10

// encodeOnce encodes a part that is read once.
func (l *listResponse) encodeOnce(part []keepwatch.Object) (_ encodedPart, err error) {
	buffer, ends := partBuffers.Get().(*[]byte), make([]int, len(part))
	b := (*buffer)[:0]
	for i, o := range part {
		if b, err = l.appendListItem(b, o, l.body.encoding); err != nil {
			return encodedPart{}, err
		}
		ends[i] = len(b)
	}
	items, begin := make([][]byte, len(part)), 0
	for i, end := range ends {
		items[i], begin = b[begin:end], end
	}
	*buffer = b
	return encodedPart{items, buffer}, nil
}

// release returns the buffer of a part that is sent, unless a large object has made it larger.
func (p encodedPart) release() {
	if p.buffer != nil && int64(cap(*p.buffer)) <= 2*partBufferSize {
		partBuffers.Put(p.buffer)
	}
}

// parts iterates over the objects, in parts of about bytesPerPart of the source's bytes.
func (l *listResponse) parts() iter.Seq[[]keepwatch.Object] {
	return func(yield func([]keepwatch.Object) bool) {
		var part []keepwatch.Object
		left := bytesPerPart
		for o := range l.result.All() {
			part = append(part, o)
			if left -= sourceBytes(part[len(part)-1:]); left > 0 {
				continue
			}
			if !yield(part) {
				return
			}
			part, left = make([]keepwatch.Object, 0, len(part)), bytesPerPart
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

// sourceBytes returns how many bytes the source has of objects.
func sourceBytes(objects []keepwatch.Object) (n int64) {
	for _, o := range objects {
		if cached, ok := o.(*watchcache.Object); ok {
			n += int64(cached.Size())
		}
	}
	return n
}

// encodedBlocks iterates over the blocks of the segments, or of the selected objects.
func (l *listResponse) encodedBlocks() iter.Seq2[*block, error] {
	if len(l.result.Segments) > 0 {
		return pipeline[store.Segment, *block]{
			slots: l.budget.encoderSlots,
			size: func(segment store.Segment) int64 {
				return sourceBytes(slices.Collect(segment.All())) / compressionRatio
			},
			cached: func(segment store.Segment) (*block, bool) { return l.cachedBlock(segment, l.body) },
			encode: func(segment store.Segment) (*block, error) { return l.segmentBlock(segment, l.body, l.use) },
		}.run(slices.Values(l.result.Segments))
	}
	return pipeline[[]*watchcache.Object, *block]{
		slots: l.budget.encoderSlots,
		size: func(part []*watchcache.Object) int64 {
			return sourceBytes(slices.Collect(objectsOf(part))) / compressionRatio
		},
		cached: func([]*watchcache.Object) (*block, bool) { return nil, false },
		encode: func(part []*watchcache.Object) (*block, error) { return l.deflate(objectsOf(part), l.body, l.use) },
	}.run(slices.Chunk(l.result.Selected, objectsPerBlock))
}
