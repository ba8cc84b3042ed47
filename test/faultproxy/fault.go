package faultproxy

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
	none    kind = ""
	answer  kind = "answer"
	event   kind = "event"
	end     kind = "end"
	cut     kind = "cut"
	tear    kind = "tear"
	reset   kind = "reset"
	stall   kind = "stall"
	freeze  kind = "freeze"
	garbage kind = "garbage"
	repeat  kind = "repeat"
)

// What can go wrong. On a watch all of it but Tear happens between two frames.
var (
	// None forwards everything. As a command it lets a stalled stream or a
	// frozen connection go on.
	None = Fault{}
	// End ends a watch as a server does that has had enough of it: cleanly.
	// Any other answer can't end early without being cut.
	End = Fault{kind: end}
	// Cut breaks the answer off, without the end that HTTP gives it.
	Cut = Fault{kind: cut}
	// Tear is Cut in the middle of a frame.
	Tear = Fault{kind: tear}
	// Reset resets the TCP connection, and with it everything else on it.
	Reset = Fault{kind: reset}
	// Stall forwards nothing more of this answer; its connection stays healthy.
	Stall = Fault{kind: stall}
	// Freeze leaves the TCP connection half-open: nothing is sent or read any
	// more, for this answer nor for others on it, and no FIN is sent. With
	// HTTP/2 the last bytes before it may be held back too.
	Freeze = Fault{kind: freeze}
	// Garbage adds a frame to a watch that nobody can decode, and goes on. In
	// place of another answer it is the whole body.
	Garbage = Fault{kind: garbage}
	// Repeat sends the last frame of a watch once more, if there was one, and
	// goes on.
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

// After is f once n bytes of the answer's body have been forwarded, on a watch
// at the next frame's end. It never happens if the answer has fewer. Answer
// can't wait.
func (f Fault) After(n int64) Fault {
	f.after = n
	return f
}

// String is f for a transcript, such as "cut after 120 bytes".
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
