package sinktest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Consumer is a program that reads the messages of a broker in order, as any user's may. It has the history of
// each object, the problems that no order of messages may have, and a transcript of each resource.
type Consumer struct {
	// Next returns the messages since the last call, as JSON.
	Next func(context.Context) ([][]byte, error)
	// CurrentTexts drops the texts of states that were replaced or deleted, and records no events in transcripts, so that
	// a million messages fit in memory. AsOf must not be called then.
	CurrentTexts bool

	mu       sync.Mutex
	rows     []*state
	last     map[id]*state
	ids      map[string]bool      // of events; a source that was restored repeats them in another epoch
	streams  map[string]*followed // resource → its messages
	gaps     map[string][]stream.Gap
	problems []string
}

// state is a state of an object.
type state struct {
	Row
	epoch int
	from  keepwatch.Revision
	end   *point
	// deleted is true if the object was deleted in this state.
	deleted bool
}

type point struct {
	epoch    int
	revision keepwatch.Revision
}

func (p point) before(o point) bool {
	return p.epoch < o.epoch || p.epoch == o.epoch && p.revision < o.revision
}

// followed is a resource as its consumer sees it. Events of one revision belong together.
type followed struct {
	*transcript
	at      keepwatch.Revision
	pending []stream.Message
	to      keepwatch.Revision
}

// message is a message of any type.
type message struct {
	Type      string              `json:"type"`
	Revision  keepwatch.Revision  `json:"revision,string"`
	From      keepwatch.Revision  `json:"from,string"`
	To        keepwatch.Revision  `json:"to,string"`
	Reason    keepwatch.GapReason `json:"reason"`
	Count     uint64              `json:"count"`
	ID        string              `json:"id"`
	Epoch     int                 `json:"epoch"`
	Resource  string              `json:"resource"`
	ObjectRaw json.RawMessage     `json:"object"`
}

// NewConsumer returns a consumer of the messages that next returns.
func NewConsumer(next func(context.Context) ([][]byte, error)) *Consumer {
	return &Consumer{Next: next, last: map[id]*state{}, ids: map[string]bool{}, streams: map[string]*followed{},
		gaps: map[string][]stream.Gap{}}
}

func (c *Consumer) follow(resource string) *followed {
	if c.streams[resource] == nil {
		c.streams[resource] = &followed{transcript: newTranscript()}
	}
	return c.streams[resource]
}

// read reads the new messages. c.mu is locked.
func (c *Consumer) read(ctx context.Context) error {
	texts, err := c.Next(ctx)
	for _, text := range texts {
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("the message %q: %w", text, err)
		}
		c.add(m)
	}
	return err
}

func (c *Consumer) problem(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func (c *Consumer) add(m message) {
	f := c.follow(m.Resource)
	switch m.Type {
	case "GAP":
		c.gaps[m.Resource] = append(c.gaps[m.Resource], stream.Gap{From: m.From, To: m.To, Reason: m.Reason})
		f.flush()
		f.pass(m.From)
		f.add(sink.Piece{Piece: stream.Piece{Messages: []stream.Message{stream.Gap{From: max(m.From, f.at), To: m.To,
			Reason: m.Reason}}}, Before: sink.Progress{Cursor: f.at}, After: sink.Progress{Cursor: f.at}})
	case "SYNCED":
		f.flush()
		f.add(sink.Piece{Piece: stream.Piece{Messages: []stream.Message{stream.Synced{Revision: m.Revision, Count: m.Count}}},
			Before: sink.Progress{Cursor: f.at}, After: sink.Progress{Cursor: m.Revision}})
		f.at = m.Revision
	case "ADDED", "MODIFIED", "DELETED":
		var o body
		if err := json.Unmarshal(m.ObjectRaw, &o); err != nil {
			c.problem("%s: %v", m.ID, err)
			return
		}
		c.event(f, m, o)
	default:
		c.problem("a message has the type %q", m.Type)
	}
}

// flush adds the events of one revision to the transcript.
func (f *followed) flush() {
	if len(f.pending) == 0 {
		return
	}
	after := f.at
	if f.at > 0 && f.before == nil { // not within a list
		after = f.to
	}
	f.add(sink.Piece{Piece: stream.Piece{Messages: f.pending}, Before: sink.Progress{Cursor: f.at},
		After: sink.Progress{Cursor: after}})
	f.at, f.pending = after, nil
}

// pass adds to the transcript that nothing has happened up to a revision: the cursor has passed it without messages.
func (f *followed) pass(to keepwatch.Revision) {
	if f.at > 0 && f.before == nil && to > f.at {
		f.add(sink.Piece{Before: sink.Progress{Cursor: f.at}, After: sink.Progress{Cursor: to}})
		f.at = to
	}
}

func (c *Consumer) event(f *followed, m message, b body) {
	revision, err := keepwatch.ParseRevision(b.Metadata.ResourceVersion)
	if err != nil {
		c.problem("%s: %v", m.ID, err)
		return
	}
	o := &object{keepwatch.Key{Namespace: b.Metadata.Namespace, Name: b.Metadata.Name}, keepwatch.UID(b.Metadata.UID),
		revision, b.Note}
	kind := map[string]keepwatch.ChangeType{"ADDED": keepwatch.Added, "MODIFIED": keepwatch.Modified,
		"DELETED": keepwatch.Deleted}[m.Type]
	if m.Revision != f.to {
		f.flush()
	}
	f.to = m.Revision
	if !c.CurrentTexts {
		f.pending = append(f.pending, stream.Event{Type: kind, Revision: m.Revision, ID: m.ID, Object: o})
	}
	inEpoch := fmt.Sprintf("%d %s", m.Epoch, m.ID)
	if c.ids[inEpoch] {
		c.problem("%s was delivered twice", inEpoch)
	}
	c.ids[inEpoch] = true
	c.fold(kind, id{m.Resource, o.key}, m, o)
}

// fold adds an event to the history of its object.
func (c *Consumer) fold(kind keepwatch.ChangeType, at id, m message, o *object) {
	last := c.last[at]
	exists := last != nil && last.end == nil
	switch {
	case kind == keepwatch.Added && exists:
		c.problem("%s is added, and %s exists", m.ID, last.UID)
	case kind != keepwatch.Added && (!exists || last.UID != string(o.uid)):
		c.problem("%s is %s, and does not exist", m.ID, kind)
	}
	if kind == keepwatch.Deleted {
		if exists {
			c.finish(last, point{m.Epoch, m.Revision})
			last.deleted = true
		}
		return
	}
	// A deletion in a gap is at its end, although a new object has the name since an earlier revision.
	if from := (point{m.Epoch, o.revision}); exists || last != nil && from.before(*last.end) {
		c.finish(last, from)
	}
	s := &state{Row: Row{at.resource, at.key.Namespace, at.key.Name, string(o.uid), o.revision, string(m.ObjectRaw)},
		epoch: m.Epoch, from: o.revision}
	c.rows, c.last[at] = append(c.rows, s), s
}

// finish sets the end of a state, which is not before its beginning.
func (c *Consumer) finish(s *state, end point) {
	if begin := (point{s.epoch, s.from}); end.before(begin) {
		end = begin
	}
	s.end = &end
	if c.CurrentTexts {
		s.Object = ""
	}
}

// RowOf returns the state of an object of sinktest from its JSON.
func RowOf(resource string, text []byte) (Row, error) {
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return Row{}, err
	}
	revision, err := keepwatch.ParseRevision(b.Metadata.ResourceVersion)
	return Row{resource, b.Metadata.Namespace, b.Metadata.Name, b.Metadata.UID, revision, string(text)}, err
}

// AsOf returns the states of a line that are valid at a cut.
func (c *Consumer) AsOf(ctx context.Context, line int, cut sink.Cut) ([]Row, error) {
	at := point{cut.Epoch, cut.Revision}
	return c.states(ctx, line, func(s *state) bool {
		return !at.before(point{s.epoch, s.from}) && (s.end == nil || at.before(*s.end))
	})
}

// Current returns the current states of a line.
func (c *Consumer) Current(ctx context.Context, line int) ([]Row, error) {
	return c.states(ctx, line, func(s *state) bool { return s.end == nil })
}

func (c *Consumer) states(ctx context.Context, line int, valid func(*state) bool) (rows []Row, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	for _, s := range c.rows {
		if lineOf(s.Resource) == line && valid(s) {
			rows = append(rows, s.Row)
		}
	}
	return rows, nil
}

// State is a state of an object that was delivered.
type State struct {
	Row
	Deleted bool // it is the last one, and the object was deleted
}

// States returns all states that were read, in order.
func (c *Consumer) States() (all []State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.rows {
		all = append(all, State{s.Row, s.deleted})
	}
	return all
}

// Gaps returns the gaps of each resource that were read.
func (c *Consumer) Gaps() map[string][]stream.Gap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.gaps)
}

// Invariants returns what was wrong with the messages, whatever the sources were.
func (c *Consumer) Invariants(ctx context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	for _, f := range c.streams {
		f.flush()
	}
	return c.problems, nil
}

// transcripts returns a transcript of each stream. Call Invariants before.
func (c *Consumer) transcripts() (all []*transcript) {
	for _, s := range Streams() {
		all = append(all, c.follow(s.ID.Resource).transcript)
	}
	return all
}
