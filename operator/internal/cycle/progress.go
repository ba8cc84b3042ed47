package cycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Record is how far a handler is with an object.
type Record struct {
	// Started is when it was to be called first.
	Started time.Time `json:"started"`
	// Stopped is when it has succeeded or failed for good.
	Stopped time.Time `json:"stopped,omitzero"`
	// Delayed is when it is to be called again.
	Delayed time.Time `json:"delayed,omitzero"`
	// Purpose is the cause it was called for. A record of another one counts for nothing.
	Purpose string `json:"purpose"`
	// Retries is how often it was called.
	Retries int  `json:"retries"`
	Success bool `json:"success"`
	Failure bool `json:"failure"`
	// Message is the last error, or the beginning of it.
	Message string `json:"message,omitempty"`
}

// continues reports whether r is a later record than one of the same handler and cause.
func (r Record) continues(older Record) bool {
	return r.Purpose == older.Purpose && r.Started.Equal(older.Started) && r.Retries > older.Retries
}

func (r Record) finished() bool { return r.Success || r.Failure }

// maxMessage bounds what an error takes of the space for annotations, which all of
// an object share. It is also what the text of a Kubernetes Event may have.
const maxMessage = 1024

// Brief is the beginning of a message that is too long to be kept.
func Brief(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}

// records reads what is kept of the handlers, by their annotations or by their names
// in the status.
func (s Spec) records(object map[string]any) (map[string]Record, error) {
	records := map[string]Record{}
	if s.Status != nil {
		value, _ := lookup(object, s.Status)
		all, _ := value.(map[string]any)
		for name, value := range all {
			if name == handledName || name == handlingName {
				continue
			}
			text, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			if err := s.read(records, name, string(text)); err != nil {
				return nil, err
			}
		}
		return records, nil
	}
	for _, key := range s.recordKeys(object) {
		text, _ := annotation(object, key)
		if err := s.read(records, key, text); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func (s Spec) read(records map[string]Record, slot, text string) error {
	var record Record
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return s.unreadable(slot, err)
	}
	records[slot] = record
	return nil
}

// ours are the annotations that records may be in: all of our prefix but those that
// have a meaning of their own, and those of an object that these were copied from.
func (s Spec) recordKeys(object map[string]any) []string {
	value, _ := lookup(object, Path{"metadata", "annotations"})
	all, _ := value.(map[string]any)
	suffix := replicaSetSuffix(object)
	var keys []string
	for key := range all {
		name, ok := strings.CutPrefix(key, s.Keys.Prefix+"/")
		if !ok || !strings.HasSuffix(name, suffix) {
			continue
		}
		switch key {
		case s.Keys.Of(handledName, suffix), s.Keys.Of(handlingName, suffix), s.Keys.Of(conditionName, suffix):
		default:
			keys = append(keys, key)
		}
	}
	return keys
}

// slot is where a text is stored, the record of a handler or another: the key of records and
// of Edits.
func (s Spec) slot(name string, object map[string]any) string {
	if s.Status != nil {
		return name
	}
	return s.Keys.Of(name, replicaSetSuffix(object))
}

// progress returns a stored text, and whether there is one.
func (s Spec) progress(object map[string]any, name string) (string, bool) {
	slot := s.slot(name, object)
	if s.Status == nil {
		return annotation(object, slot)
	}
	value, _ := lookup(object, s.inStatus(slot))
	text, there := value.(string)
	return text, there
}

func (s Spec) inStatus(slot string) Path { return append(s.Status[:len(s.Status):len(s.Status)], slot) }

// unreadable is the error for a slot whose content is not what was written.
func (s Spec) unreadable(slot string, err error) error {
	where := "annotation " + slot
	if s.Status != nil {
		where = "field " + s.inStatus(slot).String()
	}
	return fmt.Errorf("%s can't be read; restore it, or remove it to have the object handled from the start: %w", where, err)
}
