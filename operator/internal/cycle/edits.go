package cycle

import (
	"encoding/json"
	"fmt"
)

// Edits is what a cycle writes on an object, besides what handlers want.
type Edits struct {
	// Annotations are the new values; nil removes.
	Annotations map[string]*string
	// Records are the new values below Status, nil removes; empty where records are
	// kept in annotations.
	Records map[string]*Record
	// Status is where Records are.
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
	return len(e.Annotations) == 0 && len(e.Records) == 0 && e.Finalizer == KeepFinalizer
}

func (s Spec) edits() Edits {
	return Edits{Annotations: map[string]*string{}, Records: map[string]*Record{}, Status: s.Status}
}

// record writes or, if nil, removes a record.
func (e Edits) record(slot string, record *Record) {
	if e.Status != nil {
		e.Records[slot] = record
		return
	}
	if record == nil {
		e.Annotations[slot] = nil
		return
	}
	text, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("cycle: %v", err)) // a time beyond the year 9999
	}
	e.annotate(slot, string(text))
}

func (e Edits) annotate(key, value string) { e.Annotations[key] = &value }
