package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Database is what a history is read from.
type Database interface {
	// Snapshot calls read with one state of the tables, which is valid until read returns. It returns the error of
	// read. It holds up no writer of the database, and is safe for concurrent use.
	Snapshot(ctx context.Context, read func(sink.Snapshot) error) error
	Close() error
}

// Options configure a History. The zero value is ready for use.
type Options struct {
	// Known returns the type of a resource of which the database has none, nil if it is not known. It may be nil.
	Known func(resource string) *sink.Type
}

// History is the past in a database. It is safe for concurrent use.
type History struct {
	database Database
	options  Options
	latest   latest
	gaps     sortedGaps
	cuts     cuts
	now      func() time.Time // tests set it
}

// New returns the history in a database, which it does not close.
func New(database Database, options Options) *History {
	return &History{database: database, options: options, latest: latest{lock: make(chan struct{}, 1)},
		cuts: cuts{known: map[cut]sink.Point{}}, now: time.Now}
}

// View calls read with one state of the database. It is valid until read returns.
func (h *History) View(ctx context.Context, read func(*View) error) error {
	return h.database.Snapshot(ctx, func(tables sink.Snapshot) error {
		v := &View{tables: tables, known: h.options.Known, sorted: h.gaps.sort, cuts: &h.cuts, now: h.now,
			partBytes: partBytes}
		if err := v.load(ctx); err != nil {
			return err
		}
		return read(v)
	})
}

// View is one state of a history.
type View struct {
	tables  sink.Snapshot
	known   func(resource string) *sink.Type
	sorted  func([]sink.StoredGap) map[place][]sink.StoredGap
	cuts    *cuts
	now     func() time.Time
	streams []sink.Status
	gaps    map[place][]sink.StoredGap
	types   []sink.StoredType
	// partBytes is [partBytes]. Tests shorten it.
	partBytes int
}

// place is where the objects of a stream are.
type place struct{ resource, namespace string }

func (v *View) load(ctx context.Context) (err error) {
	if v.streams, err = v.tables.Status(ctx); err != nil {
		return err
	}
	gaps, err := v.tables.Gaps(ctx)
	if err != nil {
		return err
	}
	v.gaps = v.sorted(gaps)
	v.types, err = v.tables.Types(ctx)
	return err
}

// Streams returns the streams that were ever stored, by resource and namespace.
func (v *View) Streams() []sink.Status { return v.streams }

// sortedGaps are the gaps of each stream. They are immutable.
type sortedGaps struct {
	mu  sync.Mutex
	of  []sink.StoredGap
	all map[place][]sink.StoredGap
}

// sort returns gaps by their streams. Those of the same slice as before are not sorted again.
func (s *sortedGaps) sort(gaps []sink.StoredGap) map[place][]sink.StoredGap {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil && len(gaps) == len(s.of) && (len(gaps) == 0 || &gaps[0] == &s.of[0]) {
		return s.all
	}
	all := map[place][]sink.StoredGap{}
	for _, g := range gaps {
		in := place{g.Resource, g.Namespace}
		all[in] = append(all[in], g)
	}
	for _, of := range all {
		sortGaps(of)
	}
	s.of, s.all = gaps, all
	return all
}

// sortGaps sorts the gaps of a stream by their beginnings. Those with one beginning stay in their order.
func sortGaps(all []sink.StoredGap) {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b sink.StoredGap) int {
		first, _ := pointsOf(a, all)
		second, _ := pointsOf(b, all)
		return compare(first, second)
	})
	copy(all, sorted)
}

// Gaps returns the declared gaps of a stream, which must not be changed, in the order of their beginnings, and those
// with one beginning in the order in which they were stored.
func (v *View) Gaps(of sink.Status) []sink.StoredGap {
	return v.gaps[place{of.ID.Resource, of.ID.Namespace}]
}

// StreamOf returns the stream that has the objects of a resource in a namespace, or, if that is empty, in all. It
// returns an error if the database does not have them.
func (v *View) StreamOf(resource, namespace string) (sink.Status, error) {
	var namespaces []string
	for _, s := range v.streams {
		if s.ID.Resource != resource {
			continue
		}
		if s.ID.Namespace == "" || s.ID.Namespace == namespace {
			return s, nil
		}
		namespaces = append(namespaces, s.ID.Namespace)
	}
	if namespaces == nil {
		return sink.Status{}, fmt.Errorf("the history has no %s", resource)
	}
	if namespace == "" {
		return sink.Status{}, fmt.Errorf("the history has %s of the namespace %s only", resource, orList(namespaces))
	}
	return sink.Status{}, fmt.Errorf("the history has no %s of namespace %s, only of %s", resource, namespace,
		orList(namespaces))
}

// Objects selects objects of one resource. Empty fields select all.
type Objects struct{ Resource, Namespace, Name string }

// EachAt calls yield with the states that are valid at a point, in no particular order, until it returns an error,
// which EachAt returns. The point must be known.
func (v *View) EachAt(ctx context.Context, of Objects, at sink.Point, yield func(sink.State) error) error {
	query := sink.StateQuery{Resource: of.Resource, Namespace: of.Namespace, Name: of.Name, At: &at}
	return v.tables.States(ctx, query, yield)
}

// At returns the states that are valid at a point, in the order of a LIST. The point must be known.
func (v *View) At(ctx context.Context, of Objects, at sink.Point) (all []sink.State, err error) {
	err = v.EachAt(ctx, of, at, collect(&all))
	slices.SortFunc(all, func(a, b sink.State) int { return a.Key.Compare(b.Key) })
	return all, err
}

// States returns all states of objects, in the order in which they were stored.
func (v *View) States(ctx context.Context, of Objects) ([]sink.State, error) {
	return v.states(ctx, of, false)
}

// Outline returns all states of objects without their contents, in the order in which they were stored.
func (v *View) Outline(ctx context.Context, of Objects) ([]sink.State, error) {
	return v.states(ctx, of, true)
}

func (v *View) states(ctx context.Context, of Objects, withoutObjects bool) (all []sink.State, err error) {
	err = v.tables.States(ctx, sink.StateQuery{Resource: of.Resource, Namespace: of.Namespace, Name: of.Name,
		WithoutObjects: withoutObjects}, collect(&all))
	slices.SortFunc(all, func(a, b sink.State) int { return cmp.Compare(a.ID, b.ID) })
	return all, err
}

func collect(all *[]sink.State) func(sink.State) error {
	return func(s sink.State) error {
		*all = append(*all, s)
		return nil
	}
}

// Between returns the states of objects that begin or end after a point and not after another one.
func (v *View) Between(ctx context.Context, of Objects, after, upTo sink.Point) (all []sink.State, err error) {
	return v.between(ctx, of, after, upTo, false, 0)
}

var errTooLarge = errors.New("the objects of the states are too large")

// between returns errTooLarge if the objects have more than most bytes. 0 is no limit.
func (v *View) between(ctx context.Context, of Objects, after, upTo sink.Point, withoutObjects bool,
	most int) (all []sink.State, err error) {
	if !after.Before(upTo) {
		return nil, nil
	}
	return v.selected(ctx, sink.StateQuery{
		Resource: of.Resource, Namespace: of.Namespace, Name: of.Name, After: &after, UpTo: &upTo,
		WithoutObjects: withoutObjects,
	}, most)
}

// selected returns the states of a query in the order in which they were stored. It returns errTooLarge as between
// does.
func (v *View) selected(ctx context.Context, q sink.StateQuery, most int) (all []sink.State, err error) {
	bytes := 0
	err = v.tables.States(ctx, q, func(s sink.State) error {
		all = append(all, s)
		if bytes += len(s.Object); most > 0 && bytes > most {
			return errTooLarge
		}
		return nil
	})
	slices.SortFunc(all, func(a, b sink.State) int { return cmp.Compare(a.ID, b.ID) })
	return all, err
}

// Valid calls yield with the states of objects that are valid at one point and not at another one, in no particular
// order, until it returns an error, which Valid returns.
func (v *View) Valid(ctx context.Context, of Objects, at, notAt sink.Point, yield func(sink.State) error) error {
	return v.tables.States(ctx, sink.StateQuery{
		Resource: of.Resource, Namespace: of.Namespace, Name: of.Name, At: &at, NotAt: &notAt,
	}, yield)
}

// OldestAt returns the earliest metadata.creationTimestamp of the objects that are there at a point, zero if none has
// one.
func (v *View) OldestAt(ctx context.Context, of Objects, at sink.Point) (oldest time.Time, err error) {
	return oldest, v.EachAt(ctx, of, at, older(&oldest))
}

// OldestAfter returns the earliest metadata.creationTimestamp of the objects that are there after a point and not after
// another one, and were not at the first. It is zero if none has one. It reads one state of each object, in the order
// in which they were stored, and returns up to which point it has: with an error, another call can go on from there.
func (v *View) OldestAfter(ctx context.Context, of Objects, after, upTo sink.Point) (oldest time.Time,
	reached sink.Point, err error) {
	type incarnation struct {
		key keepwatch.Key
		uid keepwatch.UID
	}
	seen := map[incarnation]struct{}{}
	query := sink.StateQuery{Resource: of.Resource, Namespace: of.Namespace, Name: of.Name, At: &after,
		WithoutObjects: true}
	if err := v.tables.States(ctx, query, func(s sink.State) error {
		seen[incarnation{s.Key, s.UID}] = struct{}{}
		return nil
	}); err != nil {
		return oldest, after, err
	}
	first := map[incarnation]sink.State{}
	query.At, query.After, query.UpTo = nil, &after, &upTo
	if err := v.tables.States(ctx, query, func(s sink.State) error {
		one := incarnation{s.Key, s.UID}
		known, ok := first[one]
		if _, before := seen[one]; !before && (!ok || s.From.Before(known.From)) {
			first[one] = s
		}
		return nil
	}); err != nil {
		return oldest, after, err
	}
	see := older(&oldest)
	reached = after
	for _, s := range slices.SortedFunc(maps.Values(first), func(a, b sink.State) int { return compare(a.From, b.From) }) {
		before := sink.Point{Epoch: s.From.Epoch, Revision: s.From.Revision - 1}
		if reached.Before(before) {
			reached = before
		}
		states, err := v.Between(ctx, Objects{of.Resource, s.Key.Namespace, s.Key.Name}, before, s.From)
		if err != nil {
			return oldest, reached, err
		}
		for _, state := range states {
			_ = see(state)
		}
	}
	return oldest, upTo, nil
}

// older returns a function that sets a time to an object's creation if that is earlier.
func older(than *time.Time) func(sink.State) error {
	return func(s sink.State) error {
		var object struct {
			Metadata struct{ CreationTimestamp time.Time }
		}
		created := &object.Metadata.CreationTimestamp
		if json.Unmarshal(s.Object, &object) == nil && !created.IsZero() && (than.IsZero() || created.Before(*than)) {
			*than = *created
		}
		return nil
	}
}
