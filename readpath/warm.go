package readpath

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Encoding names what large lists are answered in: a media type, whole objects or their metadata or
// rows of a Table, and whether it is compressed. The values are closed, and are kept on disk.
type Encoding string

// encodingNames are all encodings, by form, plain and compressed.
var encodingNames = [...][2]Encoding{
	plainJSON:        {"json", "json+gzip"},
	plainProtobuf:    {"protobuf", "protobuf+gzip"},
	metadataJSON:     {"metadata-json", "metadata-json+gzip"},
	metadataProtobuf: {"metadata-protobuf", "metadata-protobuf+gzip"},
	tableJSON:        {"table", "table+gzip"},
}

// askedEncodings remembers which encodings large lists were asked for in.
type askedEncodings [len(encodingNames)][2]atomic.Bool

// note calls tell with an encoding, if it is the first time and there is somebody to tell.
func (a *askedEncodings) note(f form, zipped bool, tell func(Encoding)) {
	i := 0
	if zipped {
		i = 1
	}
	if first := &a[f][i]; tell != nil && !first.Load() && first.CompareAndSwap(false, true) {
		tell(encodingNames[f][i])
	}
}

// warmRests is how much longer Warm rests than it works: it takes a quarter of a processor.
const warmRests = 3

// Warm encodes all objects as a large list in an encoding would, so that the first one need not wait
// for that. It does nothing for an encoding that the reader does not know, and returns when it is
// done or ctx is.
func (s *Reader) Warm(ctx context.Context, e Encoding) {
	f, zipped, known := s.formOf(e)
	if !known {
		return
	}
	for segment := range s.Cache.Snapshot().Segments() {
		began := time.Now()
		if zipped && f != tableJSON {
			_, _ = s.compressed(segment, items{form: f}) // what can't be encoded is for who reads it
		} else {
			for o := range segment.All() {
				_, _ = s.readItem(o, f, recurring)
			}
		}
		select {
		case <-time.After(warmRests * time.Since(began)):
		case <-ctx.Done():
			return
		}
	}
	s.budget.counts.warmed.Inc()
}

// formOf finds the form of an encoding among those that the reader answers.
func (s *Reader) formOf(e Encoding) (f form, zipped, known bool) {
	for f := range encodingNames {
		i := slices.Index(encodingNames[f][:], e)
		if i < 0 || form(f) == tableJSON && s.Table == nil || form(f) == plainProtobuf && s.Dynamic {
			continue
		}
		return form(f), i == 1, true
	}
	return 0, false, false
}
