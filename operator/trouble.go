package operator

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/throttle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// trouble is why an object can't be handled, in the manner of a condition.
type trouble struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Reason             string      `json:"reason"`
	Message            string      `json:"message"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// troubles are what the server did not take last and was reported, "" for none since
// something was taken. Steps and events each have their own: a success of the one does not
// end the trouble of the other.
type troubles struct{ step, event string }

// reported is the trouble of an object with what is like an outgoing.
func (o *object) reported(out *outgoing) *string {
	if out.step {
		return &o.troubles.step
	}
	return &o.troubles.event
}

// report says in an Event what the server does not take, and notes on the object why it
// can't be handled: once, until the server takes something or finds another fault.
func (e *engine) report(o *object, out *outgoing, g glance, err error) {
	reported, complaint := o.reported(out), write.Complaint(err)
	if *reported == complaint {
		return
	}
	*reported = complaint
	message := cycle.Brief(err.Error())
	o.post(g.state, "Warning", "PatchRejected", message)
	if out.step {
		e.note(o, g, trouble{"Handled", "False", "PatchRejected", message, metav1.Now()})
	}
}

// note writes a trouble on its object.
func (e *engine) note(o *object, g glance, t trouble) {
	note, _ := json.Marshal(t)
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": string(o.uid), "annotations": map[string]any{e.spec.Keys.Trouble(g.state): string(note)},
	}})
	answer, err := e.patch(g.state, write.Request{Type: types.MergePatchType, Body: body})
	if err != nil {
		e.logger.Warn("the trouble can't be noted on the object", "object", o.key.String(), "error", err)
		return
	}
	o.wrote(revisionOf(answer.Object))
}

// troubled reports whether an object has a note of trouble.
func (e *engine) troubled(state map[string]any) bool {
	about, _ := state["metadata"].(map[string]any)
	annotations, _ := about["annotations"].(map[string]any)
	_, there := annotations[e.spec.Keys.Trouble(state)]
	return there
}

// relieve takes away the note of a trouble that is over.
func (e *engine) relieve(o *object, g glance) time.Time {
	o.throttle, o.stale = throttle.Throttle{}, 0
	if g.gone || !e.troubled(g.state) {
		return time.Time{}
	}
	o.out = &outgoing{step: true}
	next, _ := e.send(o, g)
	return next
}
