package audit

import (
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// Report is the result of a comparison.
type Report struct {
	// Revision is the revision of both states. It is zero if each server was read at its own.
	Revision keepwatch.Revision `json:"revision,omitempty"`
	// Server and Against are the two states.
	Server  Summary `json:"server"`
	Against Summary `json:"against"`
	// Missing counts the objects that only Server has, Extra those that only Against has, and
	// Different those whose contents differ.
	Missing   int `json:"missing"`
	Extra     int `json:"extra"`
	Different int `json:"different"`
	// Restarts counts how often the comparison started again because a revision had expired.
	Restarts int `json:"restarts"`
	// Differences are the first MaxDifferences of the missing, extra and different objects, in
	// the order of keys.
	Differences []Difference `json:"differences,omitempty"`
}

// Summary describes one state.
type Summary struct {
	// Name is the address of the server, or the state's.
	Name string `json:"name"`
	// Objects is the number of objects that were compared.
	Objects int `json:"objects"`
	// Digest is the SHA-256 of all keys and contents, in hexadecimal. Equal states have equal
	// digests, in every run with the same options.
	Digest string `json:"digest"`
	// Unreadable counts the objects that could not be compared: they have no name or revision, are
	// longer than 32 MiB, or are not valid JSON. Reasons has the first MaxReasons errors.
	Unreadable int      `json:"unreadable,omitempty"`
	Reasons    []string `json:"reasons,omitempty"`
}

// The bounds of a report.
const (
	MaxDifferences = 1000
	MaxFields      = 20
	MaxReasons     = 20
)

// Equal reports whether nothing differs and every object was compared.
func (r *Report) Equal() bool { return !r.Differs() && r.Complete() }

// Differs reports whether an object is missing, extra or different.
func (r *Report) Differs() bool { return r.Missing+r.Extra+r.Different > 0 }

// Complete reports whether every object was compared.
func (r *Report) Complete() bool { return r.Server.Unreadable+r.Against.Unreadable == 0 }

// Difference is one object that is not the same in both states.
type Difference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Kind      Kind   `json:"kind"`
	// Fields are the paths of the fields that differ in a different object, at most MaxFields,
	// and MoreFields the number of the others. Paths have the names of members, and no values.
	Fields     []string `json:"fields,omitempty"`
	MoreFields int      `json:"moreFields,omitempty"`
	// Unknown is the reason why the fields are not known, or empty.
	Unknown string `json:"unknown,omitempty"`
}

// Key returns the object's key.
func (d Difference) Key() keepwatch.Key {
	return keepwatch.Key{Namespace: d.Namespace, Name: d.Name}
}

// Kind is the kind of a difference. The set is closed.
type Kind uint8

const (
	// Missing means that only the first state has the object.
	Missing Kind = iota + 1
	// Extra means that only the second state has the object.
	Extra
	// Different means that both have it, with other contents.
	Different
)

// String returns the kind in a word.
func (k Kind) String() string {
	switch k {
	case Missing:
		return "missing"
	case Extra:
		return "extra"
	case Different:
		return "different"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText makes the kind a word in JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
