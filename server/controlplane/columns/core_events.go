package columns

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var eventView = show(
	func(event *corev1.Event) []any {
		first, last, count := eventTimes(event)
		object := event.InvolvedObject
		return []any{
			last, event.Type, event.Reason, strings.ToLower(object.Kind) + "/" + object.Name, object.FieldPath,
			eventSource(event), strings.TrimSpace(event.Message), first, int64(count), event.Name,
		}
	},
	text("Last Seen", described(corev1.Event{}, "lastTimestamp")),
	text("Type", described(corev1.Event{}, "type")),
	text("Reason", described(corev1.Event{}, "reason")),
	text("Object", described(corev1.Event{}, "involvedObject")),
	wide(text("Subobject", described(corev1.ObjectReference{}, "fieldPath"))),
	wide(text("Source", described(corev1.Event{}, "source"))),
	text("Message", described(corev1.Event{}, "message")),
	wide(text("First Seen", described(corev1.Event{}, "firstTimestamp"))),
	wide(text("Count", described(corev1.Event{}, "count"))),
	wide(nameColumn),
)

// eventTimes returns the times of the first and last occurrence of an event, and their number. Events of the old API
// have timestamps and a count, those of events.k8s.io a time, and a series once they are repeated.
func eventTimes(event *corev1.Event) (first, last any, count int32) {
	first, last, count = since(event.FirstTimestamp.Time), since(event.LastTimestamp.Time), event.Count
	if event.FirstTimestamp.IsZero() {
		first = since(event.EventTime.Time)
	}
	if event.LastTimestamp.IsZero() {
		last = first
	}
	if event.Series != nil {
		last, count = since(event.Series.LastObservedTime.Time), event.Series.Count
	}
	if count == 0 {
		count = 1
	}
	return first, last, count
}

// eventSource returns the component that reported the event, and its host.
func eventSource(event *corev1.Event) string {
	component := orElse(event.Source.Component, event.ReportingController)
	host := orElse(event.Source.Host, event.ReportingInstance)
	if host == "" {
		return component
	}
	return component + ", " + host
}
