package matrix

import (
	"maps"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// User is what a client's user has seen. It is not safe for concurrent use.
type User struct {
	fold    fold
	seen    map[string]bool // "UID/revision"
	known   map[string]bool // UIDs
	deleted map[string]bool // UIDs

	duplicates int
}

// NewUser returns the user of a client that has a state: "UID/revision" by name.
func NewUser(state map[string]string) *User {
	u := &User{fold: fold{}, seen: map[string]bool{}, known: map[string]bool{}, deleted: map[string]bool{}}
	maps.Copy(u.fold, state)
	for _, of := range state {
		u.see(of)
	}
	return u
}

// Knows returns the state of the object with a name as "UID/revision", or "" if the user knows none.
func (u *User) Knows(name string) string { return u.fold[name] }

// Receive shows the user a line.
func (u *User) Receive(line clients.Line) {
	switch line.Type {
	case "ADDED", "MODIFIED":
		state := line.UID + "/" + line.Revision
		if u.seen[state] {
			u.duplicates++
		}
		u.see(state)
	case "DELETED":
		uid := line.UID
		if uid == "" {
			uid = uidOf(u.fold[line.Name])
		}
		if u.deleted[uid] {
			u.duplicates++
		}
		u.deleted[uid] = true
	case "LISTED":
		for name, state := range u.fold {
			if uidOf(line.Objects[name]) != uidOf(state) {
				u.deleted[uidOf(state)] = true
			}
		}
		for _, state := range line.Objects {
			u.see(state)
		}
	}
	u.fold.apply(line)
}

func (u *User) see(state string) {
	u.seen[state], u.known[uidOf(state)] = true, true
}

// Counts are what a client's user did not see, and saw twice.
type Counts struct {
	// LostFinal counts names whose state is not the server's at the end.
	LostFinal int `json:"lostFinal"`
	// LostIntermediate counts states that the user never saw, except the last one of each object.
	LostIntermediate int `json:"lostIntermediate"`
	// LostDeletes counts deleted objects that the user knew and never saw deleted.
	LostDeletes int `json:"lostDeletes"`
	// Duplicates counts events that the user had seen before.
	Duplicates int `json:"duplicates"`
}

// Count compares what the user has seen with the writes of a namespace after a revision. The writes are all since the
// namespace was created.
func (u *User) Count(writes []check.Write, from keepwatch.Revision) Counts {
	end := fold{}
	for _, w := range writes {
		end.commit(w)
	}
	counts := Counts{LostFinal: u.fold.differences(end), Duplicates: u.duplicates}
	server := fold{}
	for _, w := range writes {
		uid := uidOf(server[w.Key.Name])
		server.commit(w)
		switch {
		case w.Revision <= from:
		case w.Object == nil:
			if u.known[uid] && !u.deleted[uid] {
				counts.LostDeletes++
			}
		case !u.seen[stateOf(w.Object)] && end[w.Key.Name] != stateOf(w.Object):
			counts.LostIntermediate++
		}
	}
	return counts
}
