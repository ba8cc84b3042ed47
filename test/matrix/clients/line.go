package clients

// Last is the name of an object that a client with the view Condition waits for: until its data has
// done=yes.
const Last = "last"

// Line is a line of a program, as JSON: what the user of the client sees.
type Line struct {
	// Type is ADDED, MODIFIED or DELETED for an object; LISTED for all objects, which replace the ones
	// before, for a user who compares lists; SYNCED after the initial state; ERROR.
	Type string `json:"type"`

	// Of one object. UID and Revision are empty in a deletion for which the user has none.
	Name     string `json:"name,omitempty"`
	UID      string `json:"uid,omitempty"`
	Revision string `json:"revision,omitempty"`

	// Objects has "UID/revision" by name.
	Objects map[string]string `json:"objects,omitempty"`

	// Message is an error's.
	Message string `json:"message,omitempty"`
}
