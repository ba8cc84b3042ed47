package webhook

import (
	"fmt"
	"net/url"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
)

// The types of events.
const (
	typePrefix = "io.keepwatch."
	synced     = typePrefix + "synced"
	gap        = typePrefix + "gap"
	bookmark   = typePrefix + "bookmark"
)

// newEvent returns a message as a CloudEvent.
func newEvent(s shape.Shape, o shape.Origin, m stream.Message) (event.Event, error) {
	e := event.New()
	e.SetSource(sourceOf(o.ID))
	e.SetExtension("epoch", o.Epoch)
	switch m := m.(type) {
	case stream.Event:
		e.SetID(m.ID)
		e.SetType(typePrefix + map[string]string{"ADDED": "added", "MODIFIED": "modified",
			"DELETED": "deleted"}[m.Type.String()])
		e.SetSubject(m.Object.Key().String())
		e.SetExtension("revision", m.Revision.String())
	case stream.Synced:
		e.SetID(fmt.Sprintf("synced/%d/%d", o.Epoch, m.Revision))
		e.SetType(synced)
		e.SetExtension("revision", m.Revision.String())
	case stream.Gap:
		e.SetID(fmt.Sprintf("gap/%d/%d-%d", o.Epoch, m.From, m.To))
		e.SetType(gap)
		e.SetExtension("revision", m.To.String())
	case stream.Bookmark:
		e.SetID(fmt.Sprintf("bookmark/%d/%d", o.Epoch, m.Revision))
		e.SetType(bookmark)
		e.SetExtension("revision", m.Revision.String())
	}
	data, err := s.Append(nil, o, m)
	if err != nil {
		return e, err
	}
	e.SetDataContentType(event.ApplicationJSON)
	e.DataEncoded = data // JSON already: SetData would encode it as base64
	return e, e.Validate()
}

// sourceOf returns "/clusters/CLUSTER/RESOURCE", with "/namespaces/NAMESPACE" before the resource of a stream of
// one namespace.
func sourceOf(id stream.Identity) string {
	cluster := id.Cluster.UID
	if cluster == "" {
		cluster = id.Cluster.Server
	}
	source := "/clusters/" + url.PathEscape(cluster)
	if id.Namespace != "" {
		source += "/namespaces/" + id.Namespace
	}
	return source + "/" + id.Resource
}
