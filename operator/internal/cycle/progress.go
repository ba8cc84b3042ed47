package cycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Record is the progress of a handler with an object. Its fields are kopf's.
type Record struct {
	// Started is when the first call was due.
	Started time.Time `json:"started"`
	// Stopped is when the handler succeeded or failed permanently.
	Stopped time.Time `json:"stopped,omitzero"`
	// Delayed is when the next call is due.
	Delayed time.Time `json:"delayed,omitzero"`
	// Wait is how long the next call was delayed, in seconds. It bounds Delayed, which a clock that was ahead may have
	// written.
	Wait float64 `json:"wait,omitempty"`
	// Purpose is the cause of the calls. Records for another cause are ignored.
	Purpose string `json:"purpose"`
	// Retries counts the calls.
	Retries int  `json:"retries"`
	Success bool `json:"success"`
	Failure bool `json:"failure"`
	// Message is the last error, truncated.
	Message string `json:"message,omitempty"`
}

// continues reports whether r is a later record than one of the same handler and cause.
func (r Record) continues(older Record) bool {
	return r.Purpose == older.Purpose && r.Started.Equal(older.Started) && r.Retries > older.Retries
}

func (r Record) finished() bool { return r.Success || r.Failure }

// maxWait bounds waits, in seconds: a time must be encodable.
const maxWait = 1e9

// correct limits the times of a record that were written by a clock that was ahead of now: the handler is not delayed
// longer than it was to be, or longer than its backoff if the record does not say, and its first call was not later
// than now. It reports whether it changed the record.
func (r *Record) correct(now time.Time, backoff time.Duration) bool {
	wait := backoff
	if r.Wait > 0 {
		wait = time.Duration(min(r.Wait, maxWait) * float64(time.Second))
	}
	before := *r
	if latest := now.Add(wait + time.Second); r.Delayed.After(latest) {
		r.Delayed = stamp(latest)
	}
	if r.Started.After(now.Add(time.Second)) {
		r.Started = stamp(now)
	}
	return *r != before
}

// maxMessage bounds errors in annotations, whose space is shared, and in Kubernetes Events,
// which allow no more.
const maxMessage = 1024

// Brief truncates a message that is too long to be stored.
func Brief(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}

// records reads the stored progress of all handlers, by annotation or by name in the
// status.
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

// recordKeys returns the annotations that contain records: all with our prefix except
// those of other progress and those that were copied from another object.
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

// slot returns where a record or text is stored: its key in records and in Edits.
func (s Spec) slot(name string, object map[string]any) string {
	if s.Status != nil {
		return name
	}
	return s.Keys.Of(name, replicaSetSuffix(object))
}

// progress returns a stored text, and whether it exists.
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

// ErrUnreadable: the stored progress of an object cannot be decoded.
var ErrUnreadable = errors.New("stored progress cannot be decoded")

// unreadable returns the error for a slot whose content cannot be decoded.
func (s Spec) unreadable(slot string, err error) error {
	where := "annotation " + slot
	if s.Status != nil {
		where = "field " + s.inStatus(slot).String()
	}
	return fmt.Errorf("%w: %s; restore it, or remove it to have the object handled from the start: %w", ErrUnreadable,
		where, err)
}
