package faults

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is one thing that goes wrong with one request. The zero value is None.
// Faults are values: After returns a changed copy.
type Fault struct {
	kind   kind
	after  int64          // bytes of the answer's body that are forwarded first
	status *metav1.Status // of answer and event
}

type kind string

const (
	none     kind = ""
	answer   kind = "answer"
	event    kind = "event"
	end      kind = "end"
	truncate kind = "truncate"
	tear     kind = "tear"
	reset    kind = "reset"
	stall    kind = "stall"
	freeze   kind = "freeze"
	garbage  kind = "garbage"
	repeat   kind = "repeat"
)

// The faults. On a watch all of them except Tear occur between two frames.
var (
	// None forwards everything. As a command it resumes a stalled stream or a frozen
	// connection.
	None = Fault{}
	// End ends a watch cleanly, as a server does after its timeout. Another answer cannot end
	// early without being truncated.
	End = Fault{kind: end}
	// Truncate breaks the answer off, without the end that HTTP requires.
	Truncate = Fault{kind: truncate}
	// Tear is Truncate in the middle of a frame.
	Tear = Fault{kind: tear}
	// Reset resets the TCP connection, and with it everything else on it.
	Reset = Fault{kind: reset}
	// Stall forwards nothing more of this answer; its connection stays healthy.
	Stall = Fault{kind: stall}
	// Freeze makes the TCP connection half-open: nothing is sent or read any more, for this
	// answer or for others on the connection, and no FIN is sent. With HTTP/2 the last bytes
	// before it may be delayed too.
	Freeze = Fault{kind: freeze}
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
	f.after = n
	return f
}

// String returns f for a transcript, such as "truncate after 120 bytes".
func (f Fault) String() string {
	if f.kind == none {
		return "none"
	}
	s := string(f.kind)
	if f.status != nil {
		s += fmt.Sprintf(" %d %s", f.status.Code, f.status.Reason)
	}
	if f.after > 0 {
		s += fmt.Sprintf(" after %d bytes", f.after)
	}
	return s
}
