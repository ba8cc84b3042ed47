package readpath

import (
	"context"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch/internal/pause"
)

// ListEncoding names the encoding of a large list: its media type, whether it has whole objects, their
// metadata or rows of a Table, and whether it is compressed. The values are closed. Servers store them
// on disk.
type ListEncoding string

// listEncodingsOf has the names by encoding, for lists without compression and with gzip.
var listEncodingsOf = [...][2]ListEncoding{
	objectJSON:       {"json", "json+gzip"},
	objectProtobuf:   {"protobuf", "protobuf+gzip"},
	metadataJSON:     {"metadata-json", "metadata-json+gzip"},
	metadataProtobuf: {"metadata-protobuf", "metadata-protobuf+gzip"},
	tableJSON:        {"table", "table+gzip"},
}

// warmIdleRatio is how much longer Warm pauses than it works: it uses a quarter of a processor.
const warmIdleRatio = 3

// Warm caches the encodings of all objects that a large list needs, so that the first list need not
// encode them. It returns when it is done or ctx is, and at once for an encoding that the reader does
// not answer. Objects that can't be encoded are left to their readers.
func (s *Reader) Warm(ctx context.Context, e ListEncoding) {
	as, gzip, ok := s.parseListEncoding(e)
	if !ok {
		return
	}
	for segment := range s.resource.Cache.Snapshot().Segments() {
		began := time.Now()
		if gzip && as != tableJSON {
			_, _ = s.segmentBlock(segment, listBody{encoding: as}, onlyRead)
		} else {
			for o := range segment.All() {
				_, _ = s.itemEncoding(o, as, listRead)
			}
		}
		if pause.For(ctx, warmIdleRatio*time.Since(began)) != nil {
			return
		}
	}
	s.budget.counts.warmed.Inc()
}

// parseListEncoding returns what a name stands for, if the reader answers such lists.
func (s *Reader) parseListEncoding(e ListEncoding) (as encoding, gzip, ok bool) {
	for i := range listEncodingsOf {
		as := encoding(i)
		compression := slices.Index(listEncodingsOf[i][:], e)
		if compression < 0 || as == tableJSON && s.resource.Table == nil || as == objectProtobuf && s.resource.Dynamic {
			continue
		}
		return as, compression == 1, true
	}
	return 0, false, false
}
