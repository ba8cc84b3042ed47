package faults

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is one thing that goes wrong with one request. The zero value is None.
// Faults are values: After returns a changed copy.
type Fault struct {
	kind   kind
	after  position
	status *metav1.Status // of answer and event
	length time.Duration  // of what lasts; 0 is until the client closes the request
	lag    time.Duration  // of stale and rewind
	bytes  int64          // of oversized its size, of slow its bytes a second
}

// position is the place in an answer where a fault occurs. At most one field is set.
type position struct {
	bytes   int64         // of the answer's body that are forwarded first
	events  int           // of a watch that are forwarded first
	idle    time.Duration // without an event
	elapsed time.Duration // since the answer began
}

func (p position) String() string {
	switch {
	case p.bytes > 0:
		return fmt.Sprintf(" after %d bytes", p.bytes)
	case p.events > 0:
		return fmt.Sprintf(" after %d events", p.events)
	case p.idle > 0:
		return fmt.Sprintf(" after %s without an event", p.idle)
	case p.elapsed > 0:
		return fmt.Sprintf(" after %s", p.elapsed)
	}
	return ""
}

// The faults of every answer. On a watch all of them except Tear occur between two frames. A plan has more.
var (
	// None forwards everything. As a command it resumes a stalled stream or a half-open
	// connection.
	None = Fault{}
	// End ends a watch cleanly, as a server does after its timeout. Another answer cannot end
	// early without being cut.
	End = Fault{kind: end}
	// Cut breaks the answer off, without the end that HTTP requires.
	Cut = Fault{kind: cut}
	// Tear is Cut in the middle of a frame.
	Tear = Fault{kind: tear}
	// Reset resets the TCP connection, and with it everything else on it.
	Reset = Fault{kind: reset}
	// Stall forwards nothing more of this answer; its connection stays healthy.
	Stall = Fault{kind: stall}
	// HalfOpen sends and reads nothing on the TCP connection any more, for this answer or for
	// others on the connection, and sends no FIN. With HTTP/2 the last bytes before it may be
	// delayed too.
	HalfOpen = Fault{kind: halfOpen}
	// Garbage adds a frame to a watch that cannot be decoded. For another answer it is the
	// whole body.
	Garbage = Fault{kind: garbage}
	// Repeat sends the last frame of a watch once more, if there was one.
	Repeat = Fault{kind: repeat}
)

// Answer answers the request itself with an HTTP status, as apierrors makes it
// from a reason, and a Retry-After header if it has one.
func Answer(err apierrors.APIStatus) Fault { return newStatus(answer, err) }

// Event sends an ERROR event into a watch and ends it. Any other request gets
// the same as an answer.
func Event(err apierrors.APIStatus) Fault { return newStatus(event, err) }

func newStatus(k kind, err apierrors.APIStatus) Fault {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return Fault{kind: k, status: &status}
}

// After returns f, to occur after n bytes of the answer's body were forwarded, on a watch
// at the next frame's end. It does not occur if the answer is shorter. Answer cannot be
// delayed.
func (f Fault) After(n int64) Fault {
	f.after = position{bytes: n}
	return f
}

// Name returns the fault without its position and length, such as "cut" or "status 410 Expired".
func (f Fault) Name() string {
	switch {
	case f.kind == none:
		return "none"
	case f.status != nil:
		return fmt.Sprintf("%s %d %s", f.kind, f.status.Code, f.status.Reason)
	default:
		return string(f.kind)
	}
}

// String returns f for a transcript, such as "cut after 120 bytes".
func (f Fault) String() string {
	s := f.Name() + f.after.String()
	if f.length > 0 {
		s += fmt.Sprintf(" for %s", f.length)
	}
	return s
}
