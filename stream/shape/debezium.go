package shape

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
)

// source is Debezium's description of where a change comes from. The first fields are those of all its
// connectors.
type source struct {
	Version   string `json:"version"`
	Connector string `json:"connector"`
	Name      string `json:"name"`  // of the cluster: the UID of its namespace kube-system, or its address
	Time      int64  `json:"ts_ms"` // of the delivery: the API has no time of a change
	Snapshot  string `json:"snapshot"`
	Database  string `json:"db"`
	Table     string `json:"table"` // the resource

	Namespace string `json:"namespace,omitempty"` // of the object
	Object    string `json:"object,omitempty"`    // its name
	UID       string `json:"uid,omitempty"`
	ID        string `json:"id,omitempty"` // of the event, the same in every repetition
	Revision  string `json:"revision"`
	Epoch     int    `json:"epoch"`
}

// version is the version of source's fields.
const version = "1"

func sourceOf(o Origin, m stream.Message) source {
	s := source{
		Version: version, Connector: "keepwatch", Name: o.ID.Cluster.UID, Time: o.Time.UnixMilli(),
		Snapshot: strconv.FormatBool(o.Snapshot), Database: "kubernetes", Table: o.ID.Resource, Epoch: o.Epoch,
	}
	if s.Name == "" {
		s.Name = o.ID.Cluster.Server
	}
	switch m := m.(type) {
	case stream.Event:
		key := m.Object.Key()
		s.Namespace, s.Object, s.UID = key.Namespace, key.Name, string(m.Object.UID())
		s.ID, s.Revision = m.ID, m.Revision.String()
	case stream.Synced:
		s.Namespace, s.Revision = o.ID.Namespace, m.Revision.String()
	case stream.Gap:
		s.Namespace, s.Revision = o.ID.Namespace, m.To.String()
	case stream.Bookmark:
		s.Namespace, s.Revision = o.ID.Namespace, m.Revision.String()
	}
	return s
}

// appendEnvelope appends a message as Debezium.
func appendEnvelope(text []byte, o Origin, m stream.Message) ([]byte, error) {
	source, err := json.Marshal(sourceOf(o, m))
	if err != nil {
		return text, err
	}
	if e, ok := m.(stream.Event); ok {
		return appendChange(text, source, o, e)
	}
	line, err := appendLine(nil, o, m)
	if err != nil {
		return text, err
	}
	content, err := json.Marshal(line) // base64
	if err != nil {
		return text, err
	}
	return fmt.Appendf(text, `{"source":%s,"op":"m","ts_ms":%d,"message":{"prefix":%q,"content":%s}}`, source,
		o.Time.UnixMilli(), prefix(m), content), nil
}

func prefix(m stream.Message) string {
	switch m.(type) {
	case stream.Synced:
		return "keepwatch.synced"
	case stream.Gap:
		return "keepwatch.gap"
	}
	return "keepwatch.bookmark"
}

// appendChange appends the envelope of an event.
func appendChange(text, source []byte, o Origin, e stream.Event) (_ []byte, err error) {
	op := map[keepwatch.ChangeType]string{keepwatch.Added: "c", keepwatch.Modified: "u", keepwatch.Deleted: "d"}[e.Type]
	if e.Type == keepwatch.Added && o.Snapshot {
		op = "r"
	}
	if e.Type == keepwatch.Deleted {
		if text, err = stream.AppendObject(append(text, `{"before":`...), e.Object); err != nil {
			return text, err
		}
		text = append(text, `,"after":null`...)
	} else if text, err = stream.AppendObject(append(text, `{"before":null,"after":`...), e.Object); err != nil {
		return text, err
	}
	text = append(text, `,"source":`...)
	text = append(text, source...)
	return fmt.Appendf(text, `,"op":%q,"ts_ms":%d}`, op, o.Time.UnixMilli()), nil
}
