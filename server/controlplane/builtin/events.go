package builtin

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// addEventConversions registers conversions between events.k8s.io/v1 and the stored core/v1.
func addEventConversions(scheme *runtime.Scheme) error {
	for _, err := range []error{
		scheme.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(a, b any, _ conversion.Scope) error {
			return toCoreEvent(a.(*eventsv1.Event), b.(*corev1.Event))
		}),
		scheme.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(a, b any, _ conversion.Scope) error {
			return fromCoreEvent(a.(*corev1.Event), b.(*eventsv1.Event))
		}),
		scheme.AddConversionFunc((*eventsv1.EventList)(nil), (*corev1.EventList)(nil),
			func(a, b any, _ conversion.Scope) (err error) {
				in, out := a.(*eventsv1.EventList), b.(*corev1.EventList)
				out.ListMeta = in.ListMeta
				out.Items, err = convertEach(in.Items, toCoreEvent)
				return err
			}),
		scheme.AddConversionFunc((*corev1.EventList)(nil), (*eventsv1.EventList)(nil),
			func(a, b any, _ conversion.Scope) (err error) {
				in, out := a.(*corev1.EventList), b.(*eventsv1.EventList)
				out.ListMeta = in.ListMeta
				out.Items, err = convertEach(in.Items, fromCoreEvent)
				return err
			}),
		scheme.AddFieldLabelConversionFunc(eventsv1.SchemeGroupVersion.WithKind("Event"), eventLabel),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// convertEach converts the items of a list. An empty list stays empty, and does not become null.
func convertEach[A, B any](in []A, convert func(*A, *B) error) ([]B, error) {
	out := make([]B, len(in))
	for i := range in {
		if err := convert(&in[i], &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func toCoreEvent(in *eventsv1.Event, out *corev1.Event) error {
	*out = corev1.Event{
		ObjectMeta:          in.ObjectMeta,
		EventTime:           in.EventTime,
		Series:              (*corev1.EventSeries)(in.Series),
		ReportingController: in.ReportingController,
		ReportingInstance:   in.ReportingInstance,
		Action:              in.Action,
		Reason:              in.Reason,
		InvolvedObject:      in.Regarding,
		Related:             in.Related,
		Message:             in.Note,
		Type:                in.Type,
		Source:              in.DeprecatedSource,
		FirstTimestamp:      in.DeprecatedFirstTimestamp,
		LastTimestamp:       in.DeprecatedLastTimestamp,
		Count:               in.DeprecatedCount,
	}
	return nil
}

func fromCoreEvent(in *corev1.Event, out *eventsv1.Event) error {
	*out = eventsv1.Event{
		ObjectMeta:               in.ObjectMeta,
		EventTime:                in.EventTime,
		Series:                   (*eventsv1.EventSeries)(in.Series),
		ReportingController:      in.ReportingController,
		ReportingInstance:        in.ReportingInstance,
		Action:                   in.Action,
		Reason:                   in.Reason,
		Regarding:                in.InvolvedObject,
		Related:                  in.Related,
		Note:                     in.Message,
		Type:                     in.Type,
		DeprecatedSource:         in.Source,
		DeprecatedFirstTimestamp: in.FirstTimestamp,
		DeprecatedLastTimestamp:  in.LastTimestamp,
		DeprecatedCount:          in.Count,
	}
	return nil
}

// eventLabel translates a selectable field of events.k8s.io/v1 into that of core/v1.
func eventLabel(label, value string) (string, string, error) {
	switch label {
	case "metadata.name", "metadata.namespace", "reason", "type":
		return label, value, nil
	case "reportingController":
		return "reportingComponent", value, nil
	case "regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid",
		"regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath":
		return "involvedObject" + label[len("regarding"):], value, nil
	default:
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
}
