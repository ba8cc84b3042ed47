package operator

import (
	"context"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/utils/clock"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// eventRecorder creates Kubernetes Events. It does not block its caller: Events beyond
// pendingEvents are dropped and counted. As by client-go, repeated Events become one with a
// count, and Events of one object are rate limited.
type eventRecorder struct {
	client     typedcorev1.EventsGetter
	logger     *slog.Logger
	outgoing   chan *corev1.Event
	correlator *record.EventCorrelator
	instance   string
}

const (
	// pendingEvents bounds the queue of Events.
	pendingEvents = 1000
	// flushTimeout bounds the time for pending Events after the operator has stopped.
	flushTimeout = time.Second
)

func newEventRecorder(client typedcorev1.EventsGetter, logger *slog.Logger) *eventRecorder {
	instance, _ := os.Hostname()
	return &eventRecorder{
		client: client, logger: logger, outgoing: make(chan *corev1.Event, pendingEvents),
		correlator: record.NewEventCorrelator(clock.RealClock{}), instance: instance,
	}
}

// recordEvent queues an Event about a state of the object.
func (o *object) recordEvent(state map[string]any, kind, reason, message string) {
	e := o.engine
	if e.recorder == nil {
		return
	}
	namespace := text(state, "namespace")
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: e.kind.kind.GroupVersion().String(), Kind: e.kind.kind.Kind,
			Namespace: namespace, Name: text(state, "name"), UID: types.UID(o.uid), ResourceVersion: text(state,
				"resourceVersion"),
		},
		Type: kind, Reason: reason, Message: cycle.Brief(message), Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: e.name, Host: e.recorder.instance},
		ReportingController: e.name, ReportingInstance: e.recorder.instance,
	}
	if namespace == "" {
		event.Namespace = metav1.NamespaceDefault
	}
	event.Name = util.GenerateEventName(event.InvolvedObject.Name, now.UnixNano())
	select {
	case e.recorder.outgoing <- event:
	default:
		e.metrics.eventsDropped.Inc()
	}
}

// run posts Events until ctx is done, and then the pending ones until posting is done.
func (p *eventRecorder) run(ctx, posting context.Context) {
	for posting.Err() == nil {
		select {
		case event := <-p.outgoing:
			p.post(posting, event)
		case <-ctx.Done():
			if len(p.outgoing) == 0 {
				return
			}
		}
	}
}

func (p *eventRecorder) post(ctx context.Context, event *corev1.Event) {
	result, err := p.correlator.EventCorrelate(event)
	if err != nil || result.Skip {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := p.client.Events(result.Event.Namespace)
	var posted *corev1.Event
	if result.Event.Count > 1 {
		posted, err = client.Patch(ctx, result.Event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
	}
	if result.Event.Count == 1 || err != nil {
		result.Event.ResourceVersion = ""
		posted, err = client.Create(ctx, result.Event, metav1.CreateOptions{})
	}
	if err != nil {
		p.logger.Warn("an Event cannot be posted", "reason", event.Reason, "object", event.InvolvedObject.Name, "error", err)
		return
	}
	p.correlator.UpdateState(posted)
}
