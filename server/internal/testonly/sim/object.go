package sim

import (
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// Object is one state of a simulated object.
type Object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	color    string // filters select by it
	content  string // unique for each write, "" in a tombstone
	// definition is the number of the definition that shows the object so; see definition.go.
	definition int
}

func (o *Object) Key() keepwatch.Key           { return o.key }
func (o *Object) UID() keepwatch.UID           { return o.uid }
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// Equal compares contents, for store.Equaler.
func (o *Object) Equal(p keepwatch.Object) bool {
	return o.content == content(p) && o.definition == plain(p).definition
}

func (o *Object) String() string {
	return fmt.Sprintf("%s %s@%d %s/%d", o.key, o.uid, o.revision, o.content, o.definition)
}

// Versioned is an object whose source counts the writes of its key, as etcd does.
type Versioned struct {
	Object
	version int64
}

func (o *Versioned) Version() int64 { return o.version }

// plain returns the common part of both kinds of objects.
func plain(o keepwatch.Object) *Object {
	switch o := o.(type) {
	case *Versioned:
		return &o.Object
	case *Object:
		return o
	}
	panic(fmt.Sprintf("sim: unknown object %T", o))
}

func content(o keepwatch.Object) string { return plain(o).content }

// Red is a filter by content.
func Red(o keepwatch.Object) bool { return plain(o).color == "red" }

// deleted returns an object as a DELETED event has it: its last state at the revision of the
// deletion.
func deleted(o keepwatch.Object, at keepwatch.Revision) keepwatch.Object {
	last := *plain(o)
	last.revision = at
	return &last
}

// slim returns the part of an object that a tombstone has.
func slim(o keepwatch.Object) keepwatch.Object {
	last := *plain(o)
	last.content = ""
	return &last
}
