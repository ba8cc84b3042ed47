package cycle

import (
	"encoding/json"
	"fmt"
)

// Edits are the operator's own changes of an object, besides those of handlers.
type Edits struct {
	// Annotations are the new values; nil removes one.
	Annotations map[string]*string
	// Fields are the new values below Status; nil removes one. The values are strings and
	// *Record. It is empty if progress is stored in annotations.
	Fields map[string]any
	// Status is the path of Fields.
	Status    Path
	Finalizer FinalizerEdit
}

// FinalizerEdit is a change of our finalizer. The set is closed.
type FinalizerEdit uint8

const (
	KeepFinalizer FinalizerEdit = iota
	AddFinalizer
	RemoveFinalizer
)

// Empty reports whether the edits change nothing.
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

// AnnotationsStored reports whether an object has all Annotations that were written: a webhook may remove them.
func (e Edits) AnnotationsStored(object map[string]any) bool {
	for key, text := range e.Annotations {
		if _, there := annotation(object, key); text != nil && !there {
			return false
		}
	}
	return true
}

// FieldsStored reports whether an object has all Fields that were written: a server drops fields
// that the resource's schema does not know.
func (e Edits) FieldsStored(object map[string]any) bool {
	for slot, value := range e.Fields {
		if _, there := lookup(object, append(e.Status[:len(e.Status):len(e.Status)], slot)); value != nil && !there {
			return false
		}
	}
	return true
}
