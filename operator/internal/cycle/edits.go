package cycle

import (
	"encoding/json"
	"fmt"
)

// Edits is what a cycle writes on an object, besides what handlers want.
type Edits struct {
	// Annotations are the new values; nil removes.
	Annotations map[string]*string
	// Fields are the new values below Status, nil removes; empty where progress is stored in
	// annotations. The values are strings and *Record.
	Fields map[string]any
	// Status is where Fields are.
	Status    Path
	Finalizer FinalizerEdit
}

// FinalizerEdit says what becomes of our finalizer. The set is closed.
type FinalizerEdit uint8

const (
	KeepFinalizer FinalizerEdit = iota
	AddFinalizer
	RemoveFinalizer
)

// Empty reports that there is nothing to write.
func (e Edits) Empty() bool {
	return len(e.Annotations) == 0 && len(e.Fields) == 0 && e.Finalizer == KeepFinalizer
}

func (s Spec) edits() Edits {
	return Edits{Annotations: map[string]*string{}, Fields: map[string]any{}, Status: s.Status}
}

// record writes a record.
func (e Edits) record(slot string, record *Record) {
	if e.Status != nil {
		e.Fields[slot] = record
		return
	}
	text, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("cycle: %v", err)) // a time beyond the year 9999
	}
	e.progress(slot, string(text))
}

// progress writes a text.
func (e Edits) progress(slot, text string) {
	if e.Status != nil {
		e.Fields[slot] = text
		return
	}
	e.Annotations[slot] = &text
}

// remove removes a record or a text.
func (e Edits) remove(slot string) {
	if e.Status != nil {
		e.Fields[slot] = nil
		return
	}
	e.Annotations[slot] = nil
}

// only reports whether nothing but a slot is written.
func (e Edits) only(slot string) bool {
	_, annotation := e.Annotations[slot]
	_, field := e.Fields[slot]
	return (annotation || field) && len(e.Annotations)+len(e.Fields) == 1 && e.Finalizer == KeepFinalizer
}

// unchanged reverts progress or remove.
func (e Edits) unchanged(slot string) {
	delete(e.Fields, slot)
	delete(e.Annotations, slot)
}

// Kept reports whether an object has all of Fields that was to be written: a server
// drops what the schema of a resource does not know.
func (e Edits) Stored(object map[string]any) bool {
	for slot, value := range e.Fields {
		if _, there := lookup(object, append(e.Status[:len(e.Status):len(e.Status)], slot)); value != nil && !there {
			return false
		}
	}
	return true
}
