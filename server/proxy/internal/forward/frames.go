package forward

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
)

// maxFrame bounds what is kept of a frame that has not arrived as a whole. The revision of a longer one is not known.
const maxFrame = 64 << 10

// frameReader reads the revisions of the events of a watch.
type frameReader struct {
	protobuf bool
	initial  bool               // the initial events have not ended, whose revisions say nothing
	endsList bool               // a bookmark that says so ends them, not any one
	at       keepwatch.Revision // of the last event, zero if it is not known
	lost     bool               // no further revision is known: the stream is none of events, or an error has ended it
	part     []byte             // of a frame that has not ended
	skip     int                // bytes of part that were dropped, because the frame is longer than maxFrame
}

// position returns the revision up to which whole events were read, zero if it is not known or the last event is not
// whole.
func (r *frameReader) position() keepwatch.Revision {
	if r.lost || r.initial || len(r.part) > 0 || r.skip > 0 {
		return 0
	}
	return r.at
}

// read reads on.
func (r *frameReader) read(b []byte) {
	for len(b) > 0 && !r.lost {
		size, whole := r.frame(b)
		if !whole {
			r.keep(b)
			return
		}
		r.event(b[:size])
		b = b[size:]
	}
}

// frame returns how much of b belongs to the frame that has begun, and whether that is its end.
func (r *frameReader) frame(b []byte) (size int, whole bool) {
	if !r.protobuf {
		end := bytes.IndexByte(b, '\n')
		return end + 1, end >= 0
	}
	kept := min(len(r.part), 4)
	head := append(r.part[:kept:kept], b[:min(len(b), 4)]...)
	if len(head) < 4 {
		return 0, false
	}
	size = 4 + int(binary.BigEndian.Uint32(head)) - len(r.part) - r.skip
	return size, size <= len(b)
}

// keep keeps a part of a frame, as far as it may become long.
func (r *frameReader) keep(b []byte) {
	n := min(len(b), maxFrame-len(r.part))
	r.part = append(r.part, b[:n]...)
	r.skip += len(b) - n
}

// event reads the event that ends with b.
func (r *frameReader) event(b []byte) {
	dropped := r.skip > 0
	if len(r.part) > 0 {
		b = append(r.part, b...)
	}
	r.part, r.skip = nil, 0
	if dropped {
		r.at = 0 // the type is not known either, but an error is short, and so is a bookmark
		return
	}
	if r.initial && !bytes.Contains(b, []byte(watch.Bookmark)) && !bytes.Contains(b, []byte(watch.Error)) {
		return
	}
	kind, revision, endsList := decodeEvent(b, r.protobuf)
	switch kind {
	case watch.Error:
		r.lost = true
	case watch.Bookmark:
		r.initial = r.initial && r.endsList && !endsList
	}
	r.at = revision
}

// decodeEvent returns the type of an event, the revision of its object, zero if it cannot be read, and whether it ends
// the initial events.
func decodeEvent(b []byte, isProtobuf bool) (kind watch.EventType, revision keepwatch.Revision, endsList bool) {
	var event struct {
		Type   watch.EventType
		Object struct {
			Metadata struct {
				ResourceVersion string
				Annotations     map[string]string
			}
		}
	}
	if isProtobuf {
		var message metav1.WatchEvent
		var object runtime.Unknown
		var read metav1.PartialObjectMetadata // all objects have their metadata in its field
		if message.Unmarshal(b[4:]) != nil {
			return watch.Error, 0, false
		}
		envelope, ok := bytes.CutPrefix(message.Object.Raw, []byte("k8s\x00"))
		if !ok || object.Unmarshal(envelope) != nil || read.Unmarshal(object.Raw) != nil {
			return watch.Error, 0, false
		}
		event.Type = watch.EventType(message.Type)
		event.Object.Metadata.ResourceVersion, event.Object.Metadata.Annotations = read.ResourceVersion, read.Annotations
	} else if json.Unmarshal(b, &event) != nil {
		return watch.Error, 0, false
	}
	revision, _ = keepwatch.ParseRevision(event.Object.Metadata.ResourceVersion)
	return event.Type, revision, event.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}
