package matrix

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// arrival is a line of a client, and when it arrived.
type arrival struct {
	clients.Line
	at time.Time
}

// fold is the state that a client's lines lead to: "UID/revision" by name.
type fold map[string]string

// apply applies one line. A deletion of another object than the one with its name changes nothing: kopf
// orders the events of one UID only.
func (f fold) apply(line clients.Line) {
	switch line.Type {
	case "ADDED", "MODIFIED":
		f[line.Name] = line.UID + "/" + line.Revision
	case "DELETED":
		if line.UID == "" || line.UID == uidOf(f[line.Name]) {
			delete(f, line.Name)
		}
	case "LISTED":
		clear(f)
		maps.Copy(f, line.Objects)
	}
}

// commit applies one write.
func (f fold) commit(w check.Write) {
	if w.Object == nil {
		delete(f, w.Key.Name)
	} else {
		f[w.Key.Name] = stateOf(w.Object)
	}
}

// stateAt is the server's state at a revision, by the writes before it.
func stateAt(writes []check.Write, revision keepwatch.Revision) fold {
	f := fold{}
	for _, w := range writes {
		if w.Revision <= revision {
			f.commit(w)
		}
	}
	return f
}

// hasUIDs reports whether the fold has these objects, in any state.
func (f fold) hasUIDs(uids map[string]types.UID) bool {
	for name, uid := range uids {
		if uidOf(f[name]) != string(uid) {
			return false
		}
	}
	return true
}

// differences counts the names that differ.
func (f fold) differences(other fold) int {
	n := 0
	for name, state := range f {
		if other[name] != state {
			n++
		}
	}
	for name := range other {
		if _, ok := f[name]; !ok {
			n++
		}
	}
	return n
}

func stateOf(o keepwatch.Object) string { return fmt.Sprintf("%s/%d", o.UID(), o.Revision()) }

func uidOf(state string) string { uid, _, _ := strings.Cut(state, "/"); return uid }
