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
	color    string // what filters look at
	content  string // differs from write to write, "" for what a tombstone has left
}

func (o *Object) Key() keepwatch.Key           { return o.key }
func (o *Object) UID() keepwatch.UID           { return o.uid }
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// Equal compares contents, as store.Equaler asks for.
func (o *Object) Equal(p keepwatch.Object) bool { return o.content == content(p) }

func (o *Object) String() string {
	return fmt.Sprintf("%s %s@%d %s", o.key, o.uid, o.revision, o.content)
}

// Numbered is an object whose source counts the writes of its key, as etcd does.
type Numbered struct {
	Object
	version int64
}

func (o *Numbered) Version() int64 { return o.version }

// plain is what both kinds of objects have in common.
func plain(o keepwatch.Object) *Object {
	switch o := o.(type) {
	case *Numbered:
		return &o.Object
	case *Object:
		return o
	}
	panic(fmt.Sprintf("sim: unknown object %T", o))
}

func content(o keepwatch.Object) string { return plain(o).content }

// Red is a filter by content, InNamespace one by key.
func Red(o keepwatch.Object) bool { return plain(o).color == "red" }

// deleted is an object as a DELETED event shows it: in its last state, at the
// revision of the deletion.
func deleted(o keepwatch.Object, at keepwatch.Revision) keepwatch.Object {
	last := *plain(o)
	last.revision = at
	return &last
}

// slim is what a tombstone keeps of an object.
func slim(o keepwatch.Object) keepwatch.Object {
	last := *plain(o)
	last.content = ""
	return &last
}
