package sinktest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Fold folds lines of JSON as package stream asks of consumers: an event whose id was seen changes nothing, and a
// rewind forgets the ids. A deletion that is repeated after a rewind has no known id then, and deletes the object that
// has the key meanwhile, which is delivered again. It is a [Reader] of what it has received, and safe for concurrent
// use. The zero value is ready for use.
type Fold struct {
	// Read, if set, is called before each method of Reader, by one goroutine at a time: it adds the lines that were
	// received since.
	Read func() error
	// CurrentTexts drops the texts of states that were replaced or deleted, so that a million lines fit in memory. AsOf
	// must not be called then.
	CurrentTexts bool

	reading  sync.Mutex
	mu       sync.Mutex
	streams  map[string]*folded      // by resource
	gaps     map[string][]stream.Gap // by resource
	problems []string
	Lines    int // that were received
	Repeated int // lines whose id was seen
}

// folded is the state of one resource: of one stream, or of one for each of several namespaces.
type folded struct {
	// before is the state at the last rewind, and events are those since.
	before  map[keepwatch.Key]Row
	events  []foldedEvent
	current map[keepwatch.Key]Row
	seen    map[string]digest // id → its object's, of ADDED and MODIFIED
	deleted map[string]bool   // UIDs, since the last rewind
	gone    map[string]bool   // UIDs that were deleted at any time
	synced  bool
}

type foldedEvent struct {
	Row
	deleted bool
}

// line is a line of any type.
type line struct {
	Type, ID            string
	Revision, From, To  keepwatch.Revision `json:",string"`
	Resource, Namespace string
	Reason              keepwatch.GapReason
	Count               int
	Object              json.RawMessage
}

// Add folds a line, or records what is wrong with it.
func (f *Fold) Add(text []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Lines++
	var l line
	if err := json.Unmarshal(text, &l); err != nil || l.Resource == "" {
		f.problem("the line %q cannot be read: %v", text[:min(200, len(text))], err)
		return
	}
	if f.streams == nil {
		f.streams, f.gaps = map[string]*folded{}, map[string][]stream.Gap{}
	}
	s := f.streams[l.Resource]
	if s == nil {
		s = &folded{current: map[keepwatch.Key]Row{}, gone: map[string]bool{}}
		s.rewind()
		f.streams[l.Resource] = s
	}
	switch l.Type {
	case "ADDED", "MODIFIED", "DELETED":
		f.event(s, l)
	case "GAP":
		f.gaps[l.Resource] = append(f.gaps[l.Resource], stream.Gap{From: l.From, To: l.To, Reason: l.Reason})
		if !s.synced {
			f.problem("%s: a gap before the first SYNCED", l.Resource)
		}
		if l.Reason == keepwatch.GapRewind {
			s.rewind()
		}
	case "SYNCED":
		s.synced = true
		if n := s.count(l.Namespace); l.Count != n {
			f.problem("%s %s: SYNCED at %d counts %d of %d", l.Resource, l.Namespace, l.Revision, l.Count, n)
		}
	default:
		f.problem("%s: a line of type %q", l.Resource, l.Type)
	}
}

// count returns the number of current objects in a namespace; "" has all.
func (s *folded) count(namespace string) (n int) {
	for key := range s.current {
		if namespace == "" || key.Namespace == namespace {
			n++
		}
	}
	return n
}

func (s *folded) rewind() {
	s.before = map[keepwatch.Key]Row{}
	for key, row := range s.current {
		s.before[key] = row
	}
	s.events, s.seen, s.deleted = nil, map[string]digest{}, map[string]bool{}
}

func (f *Fold) event(s *folded, l line) {
	var o struct{ Metadata metadata }
	err := json.Unmarshal(l.Object, &o)
	deleted := l.Type == "DELETED"
	id, content := o.Metadata.UID+"/"+o.Metadata.ResourceVersion, digestOf(l.Object)
	if deleted {
		id, content = id+"/deleted", digest{} // a repeated deletion may have the metadata only
	}
	if err != nil || l.ID != id {
		f.problem("%s %s: the object is %s (%v)", l.Type, l.ID, l.Object, err)
		return
	}
	if was, ok := s.seen[l.ID]; ok {
		f.Repeated++
		if was != content {
			f.problem("%s %s has two contents; the second one is %s", l.Type, l.ID, l.Object)
		}
		return
	}
	s.seen[l.ID] = content
	row := Row{l.Resource, o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, l.Revision, string(l.Object)}
	key := keepwatch.Key{Namespace: row.Namespace, Name: row.Name}
	prior, known := s.current[key]
	switch {
	case deleted && s.gone[row.UID]:
		f.Repeated++
	case known && prior.UID != row.UID:
		f.problem("%s %s replaces %s without a deletion", l.Type, l.ID, prior.UID)
	case !deleted && s.deleted[row.UID]:
		f.problem("%s %s is of a deleted object", l.Type, l.ID)
	}
	if deleted {
		s.deleted[row.UID], s.gone[row.UID] = true, true
	}
	s.apply(s.current, foldedEvent{row, deleted})
	if f.CurrentTexts {
		row.Object = ""
	}
	s.events = append(s.events, foldedEvent{row, deleted})
}

// digest identifies the content of an object: millions of them are kept.
type digest [sha256.Size]byte

// digestOf returns the digest of JSON with its keys in order: an API server has another order in lists than in watches.
func digestOf(object json.RawMessage) digest {
	var content any
	if err := json.Unmarshal(object, &content); err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	return sha256.Sum256(fmt.Append(nil, content)) // maps in the order of their keys
}

func (s *folded) apply(state map[keepwatch.Key]Row, e foldedEvent) {
	key := keepwatch.Key{Namespace: e.Namespace, Name: e.Name}
	if e.deleted {
		delete(state, key)
	} else {
		state[key] = e.Row
	}
}

// asOf returns the state at a revision since the last rewind.
func (s *folded) asOf(at keepwatch.Revision) (rows []Row) {
	state := map[keepwatch.Key]Row{}
	for key, row := range s.before {
		state[key] = row
	}
	for _, e := range s.events {
		if e.Revision <= at {
			s.apply(state, e)
		}
	}
	for _, row := range state {
		rows = append(rows, row)
	}
	return rows
}

// Current returns the objects of all streams of a line; see [Streams].
func (f *Fold) Current(_ context.Context, line int) ([]Row, error) {
	return f.rows(line, func(s *folded) (rows []Row) { return slices.Collect(maps.Values(s.current)) })
}

// AsOf returns the objects of a line at its newest cut.
func (f *Fold) AsOf(_ context.Context, line int, cut sink.Cut) ([]Row, error) {
	return f.rows(line, func(s *folded) []Row { return s.asOf(cut.Revision) })
}

func (f *Fold) rows(line int, of func(*folded) []Row) (rows []Row, err error) {
	if err := f.read(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for resource, s := range f.streams {
		if lineOf(resource) == line {
			rows = append(rows, of(s)...)
		}
	}
	return rows, nil
}

// lineOf returns the line of a resource of [Streams], and 0 for any other resource.
func lineOf(resource string) int {
	return max(0, slices.IndexFunc(lines, func(names []string) bool { return slices.Contains(names, resource) }))
}

// Invariants returns the problems of all lines that were received.
func (f *Fold) Invariants(context.Context) ([]string, error) {
	err := f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problems, err
}

func (f *Fold) read() error {
	if f.Read == nil {
		return nil
	}
	f.reading.Lock()
	defer f.reading.Unlock()
	return f.Read()
}

// problem records a problem. f.mu is locked.
func (f *Fold) problem(format string, args ...any) {
	if len(f.problems) < maxProblems {
		f.problems = append(f.problems, fmt.Sprintf(format, args...))
	}
}

// AddAll folds the lines of a text.
func (f *Fold) AddAll(text []byte) {
	for l := range bytes.Lines(text) {
		f.Add(bytes.TrimSuffix(l, []byte("\n")))
	}
}

// States returns all states that were received since the last rewind, of each resource in order.
func (f *Fold) States() (all []State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		last := map[string]int{} // UID → its newest state
		for _, e := range s.events {
			if i, ok := last[e.UID]; e.deleted && ok {
				all[i].Deleted = true
			} else if !e.deleted {
				last[e.UID] = len(all)
				all = append(all, State{e.Row, false})
			}
		}
	}
	return all
}

// Gaps returns the gaps of each resource that were received.
func (f *Fold) Gaps() map[string][]stream.Gap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.gaps)
}
