package operator

import (
	"encoding/json"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/throttle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// condition is the reason why an object cannot be handled, in the form of a status condition.
type condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Reason             string      `json:"reason"`
	Message            string      `json:"message"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// reportedFailures are the rejections and obstacles that were reported last, "" after the server accepted a
// request. Steps and event handlers have one each: a success of the one does not clear the
// failure of the other.
type reportedFailures struct{ step, event string }

// reported returns the reported failure for the kind of an outgoing.
func (o *object) reported(out *outgoing) *string {
	if out.step {
		return &o.reportedFailures.step
	}
	return &o.reportedFailures.event
}

// reportRejection records a rejection in an Event, and on the object as a condition. The
// same rejection is reported once until the server accepts a request.
func (e *engine) reportRejection(o *object, out *outgoing, g view, err error) {
	reported, rejection := o.reported(out), write.Rejection(err)
	if *reported == rejection {
		return
	}
	*reported = rejection
	message := cycle.Brief(err.Error())
	o.recordEvent(g.state, "Warning", "PatchRejected", message)
	if out.step {
		e.writeCondition(o, g, condition{"Handled", "False", "PatchRejected", message, metav1.Now()})
	}
}

// obstacles are the errors of an object's progress, by the reasons in its condition. Only a change of the object, of
// its schema or of a webhook removes them.
var obstacles = map[error]string{
	cycle.ErrUnreadable: "ProgressUnreadable",
	cycle.ErrNoSpace:    "NoSpaceForProgress",
	errNotStored:        "ProgressNotStored",
}

// reportObstacle records an obstacle in an Event, and on the object as a condition, once for each reason until the
// server accepts a step. It does nothing for other errors.
func (e *engine) reportObstacle(o *object, g view, err error) {
	for obstacle, reason := range obstacles {
		if !errors.Is(err, obstacle) || o.reportedFailures.step == reason {
			continue
		}
		o.reportedFailures.step = reason
		message := cycle.Brief(err.Error())
		o.recordEvent(g.state, "Warning", reason, message)
		e.writeCondition(o, g, condition{"Handled", "False", reason, message, metav1.Now()})
	}
}

// writeCondition writes a condition into the object's annotations.
func (e *engine) writeCondition(o *object, g view, t condition) {
	note, _ := json.Marshal(t)
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": string(o.uid), "annotations": map[string]any{e.spec.Keys.Condition(g.state): string(note)},
	}})
	answer, err := e.patch(o, g.state, write.Request{Type: types.MergePatchType, Body: body})
	if err != nil {
		e.logger.Warn("the condition cannot be written to the object", "object", o.key.String(), "error", err)
		return
	}
	o.wrote(revisionOf(answer.Object))
}

// hasCondition reports whether an object has a condition.
func (e *engine) hasCondition(state map[string]any) bool {
	about, _ := state["metadata"].(map[string]any)
	annotations, _ := about["annotations"].(map[string]any)
	_, there := annotations[e.spec.Keys.Condition(state)]
	return there
}

// clearCondition removes the condition of an object that can be handled again.
func (e *engine) clearCondition(o *object, g view) time.Time {
	o.throttle, o.staleRevision = throttle.Throttle{}, 0
	if g.gone || !e.hasCondition(g.state) {
		return time.Time{}
	}
	o.pending = &outgoing{step: true}
	next, _ := e.send(o, g)
	return next
}
