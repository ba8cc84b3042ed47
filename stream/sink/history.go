package sink

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Point is a revision in an epoch. Points are ordered by epoch, then by revision.
type Point struct {
	Epoch    int
	Revision keepwatch.Revision
}

// Before reports whether p is before o.
func (p Point) Before(o Point) bool {
	return p.Epoch < o.Epoch || p.Epoch == o.Epoch && p.Revision < o.Revision
}

// Type is what a server's discovery says of a resource's type. A database that follows the resource stores it, and
// each change of it.
type Type struct {
	Version    string   `json:"version"`
	Kind       string   `json:"kind"`
	Singular   string   `json:"singular,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`
	Categories []string `json:"categories,omitempty"`
	Namespaced bool     `json:"namespaced"`
	// Partial is true if fields of the objects are not stored: an absent one may have been there.
	Partial bool `json:"partial,omitempty"`
}

// StoredType is a Type of a resource, from a time on.
type StoredType struct {
	Resource string
	Seen     time.Time // of the start of the sync that stored it
	Type     Type
}

// State is one state of an object, and how long it was valid: for the points in [From, To).
type State struct {
	ID       int64 // the order in which states were stored
	Resource string
	Key      keepwatch.Key
	UID      keepwatch.UID
	From     Point // its revision is the object's resourceVersion
	// SeenFrom and SeenTo are the times of the transactions, in UTC.
	SeenFrom time.Time
	To       *Point // nil while the state is current
	SeenTo   time.Time
	Deleted  bool   // the object was deleted at To
	Object   []byte // as JSON, with apiVersion and kind
}

// GapThinned is the reason of a gap in which a [Thinning] has deleted states. Each state that is left of it has its own
// revisions and times, but the one before it may have been replaced earlier. Deletions and the last states before them
// are complete. No stream delivers it.
const GapThinned keepwatch.GapReason = "thinned"

// StoredGap is a declared gap of a stream: the history after From and before To is missing.
type StoredGap struct {
	Resource, Namespace string
	Epoch               int // of To; of From too, unless Reason is GapRewind
	From, To            keepwatch.Revision
	Reason              keepwatch.GapReason
	Seen                time.Time // when it was declared
	// Began is the time of the last transaction before it, up to which the state is known, zero in tables that do not
	// have it.
	Began time.Time
	// Ended is when the list that ends it was complete, zero if it is not. In one of GapThinned, it and Seen are when the
	// state at To was stored.
	Ended time.Time
}

// StateQuery selects states of one resource. Empty fields select all.
type StateQuery struct {
	Resource  string // required
	Namespace string
	Name      string // Namespace is that of the object then, also an empty one
	// Names select objects of one namespace, as Name does, in any order. They are some hundreds at most.
	Names []string
	// At selects the states that are valid at a point.
	At *Point
	// NotAt selects, of the states that are valid at At, those that are not valid at another point.
	NotAt *Point
	// After and UpTo, both or neither, select the states that begin or end after After and not after UpTo.
	After, UpTo *Point
	// Since selects the states that were stored, or ended, at a time or later.
	Since time.Time
	// WithoutObjects leaves State.Object empty, and does not read it.
	WithoutObjects bool
}

// Snapshot reads one state of a database's tables.
type Snapshot interface {
	// Status returns the status of every stream that was ever stored, by resource and namespace.
	Status(ctx context.Context) ([]Status, error)
	// Gaps returns all declared gaps in the order in which they were stored. They must not be changed: snapshots that have
	// the same gaps may share them.
	Gaps(ctx context.Context) ([]StoredGap, error)
	// Types returns the types in the order in which they were stored. It has none of a resource that was last
	// followed before databases stored them.
	Types(ctx context.Context) ([]StoredType, error)
	// States calls yield with each selected state until it returns an error, which States returns: those of a namespace
	// and a name in the order in which they were stored, others in no particular order. yield reads nothing of the
	// snapshot.
	States(ctx context.Context, q StateQuery, yield func(State) error) error
	// Example returns the state of a resource that was stored last, nil if there is none.
	Example(ctx context.Context, resource string) (*State, error)
	// PointAt returns the greatest point at which a state of the resources begins or ends that was stored at a time
	// or before, the zero Point if there is none.
	PointAt(ctx context.Context, resources []string, at time.Time) (Point, error)
	// PointsAfter returns the next points after one at which states of a resource in a namespace, or in all, begin or end,
	// in their order and without repetition, at most limit.
	PointsAfter(ctx context.Context, resource, namespace string, after Point, limit int) ([]Point, error)
	// SeenAt returns the time at which the last change of the resources up to a point was stored, zero if there is
	// none.
	SeenAt(ctx context.Context, resources []string, at Point) (time.Time, error)
}
