package shape

import (
	"encoding/json"
	"fmt"

	"github.com/keepwatch/keepwatch/stream"
)

// appendLine appends a message as Events.
func appendLine(text []byte, o Origin, m stream.Message) ([]byte, error) {
	switch m := m.(type) {
	case stream.Event:
		return stream.AppendEvent(text, m, o.ID.Resource)
	case stream.Synced:
		return fmt.Appendf(text, `{"type":"SYNCED","revision":"%d",%s,"count":%d}`, m.Revision, scope(o), m.Count), nil
	case stream.Gap:
		return fmt.Appendf(text, `{"type":"GAP","from":"%d","to":"%d","reason":%q,%s}`, m.From, m.To, m.Reason, scope(o)), nil
	case stream.Bookmark:
		return fmt.Appendf(text, `{"type":"BOOKMARK","revision":"%d",%s}`, m.Revision, scope(o)), nil
	}
	panic(fmt.Sprintf("shape: unknown message %T", m))
}

// scope returns the members that name a stream.
func scope(o Origin) string {
	members := `"resource":` + quote(o.ID.Resource)
	if o.ID.Namespace != "" {
		members += `,"namespace":` + quote(o.ID.Namespace)
	}
	return members
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return string(text)
}
