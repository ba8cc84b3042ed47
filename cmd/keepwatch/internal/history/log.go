package history

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/source/history/field"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// newLogCommand returns `keepwatch history log`.
func newLogCommand() *cobra.Command {
	o := newFlags()
	since, until := "", ""
	cmd := &cobra.Command{
		Use:                   "log [TYPE | TYPE/NAME] [--since MOMENT] [--until MOMENT] --from DATABASE",
		DisableFlagsInUseLine: true,
		Short:                 "Show what has happened to an object, to all of a type, or since a moment",
		Long: `Show what has happened to an object, to all of a type in a namespace, or with --since alone to
everything in a namespace, in the order of revisions. With -A that is everything, cluster-scoped
objects included.

EVENT is ADDED, MODIFIED or DELETED; EXISTED for an object of the first list: when it was created or
last changed is not known; and GAP where a part of the history is missing. A deletion within a gap
has the revision of the gap's end. TIME is when the change was stored. MANAGERS are the tools that
have written the state, and FIELDS what they have changed.`,
		Example: `  keepwatch history log deployment/web -n shop --from sqlite:state.db
  keepwatch history log -A --since -15m --from sqlite:state.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("text", "json", "yaml"); err != nil {
				return err
			}
			if len(args) == 0 && since == "" || len(args) > 0 && args[0] == "*" {
				return exit.Usage(errors.New("give the type of the resource, for example pods, " +
					"or for all types the moment to begin with: --since -15m"))
			}
			l := logger{flags: o, out: bufio.NewWriter(cmd.OutOrStdout())}
			for _, flag := range []struct {
				name, text string
				to         **history.Moment
			}{{"since", since, &l.since}, {"until", until, &l.until}} {
				if flag.text == "" {
					continue
				}
				m, err := Moment(flag.name, flag.text)
				if err != nil {
					return err
				}
				*flag.to = &m
			}
			return o.view(cmd.Context(), func(v *history.View) error {
				err := l.log(cmd.Context(), v, args)
				if err == errWrongOrder {
					err = exit.Usage(fmt.Errorf("--until %s is before --since %s: nothing is between them", until, since))
				}
				return err
			})
		},
	}
	o.addTo(cmd.Flags(), "text, json or yaml")
	cmd.Flags().StringVar(&since, "since", since,
		"the moment to begin after: 2026-11-28T10:42:00Z, 10:42, -15m or revision/4711; otherwise the beginning of the history")
	cmd.Flags().StringVar(&until, "until", until, "the last moment; otherwise everything that is stored")
	return cmd
}

// errWrongOrder is the error of a log that ends before it begins.
var errWrongOrder = errors.New("--until is before --since")

// checkOrder returns errWrongOrder if a log of streams ends before it begins. The moment now is behind all others,
// although the point that all streams have reached may not be. A revision may be one of another type: a time is before
// it if it is before the last change up to it of all types, since the points of the streams alone may be older.
func (l *logger) checkOrder(ctx context.Context, v *history.View, streams []sink.Status,
	after, upTo func(sink.Status) sink.Point) error {
	switch {
	case l.since == nil || l.until == nil || l.until.IsNow():
		return nil
	case l.until.Time.IsZero():
		if slices.ContainsFunc(streams, func(s sink.Status) bool { return upTo(s).Before(after(s)) }) {
			return errWrongOrder
		}
		return nil
	case l.since.IsNow():
		return errWrongOrder
	}
	since := l.since.Time
	if l.since.Revision > 0 {
		points, err := v.PointsOf(ctx, *l.since, true, streams[0])
		if err != nil {
			return err
		}
		since = points.Time
	}
	if l.until.Time.Before(since) {
		return errWrongOrder
	}
	return nil
}

// logger writes what has happened.
type logger struct {
	*flags
	out          *bufio.Writer
	since, until *history.Moment // nil if they are not given
	several      bool            // objects
	types        bool            // several
	decoded      decodedStates
}

// LoggedEvent is an event as JSON and YAML show it.
type LoggedEvent struct {
	Type       history.EventType  `json:"type"`
	Revision   keepwatch.Revision `json:"revision"`
	Epoch      int                `json:"epoch,omitempty"`
	Time       time.Time          `json:"time"`
	Resource   string             `json:"resource,omitempty"`
	Namespace  string             `json:"namespace,omitempty"`
	Name       string             `json:"name,omitempty"`
	UID        keepwatch.UID      `json:"uid,omitempty"`
	Generation int64              `json:"generation,omitempty"`
	Managers   []field.Manager    `json:"managers,omitempty"`
	Fields     []loggedField      `json:"fields,omitempty"`
	Gap        *loggedGap         `json:"gap,omitempty"`
}

// loggedField is a field that has changed.
type loggedField struct {
	Path     string          `json:"path"`
	Old      json.RawMessage `json:"old,omitempty"`
	New      json.RawMessage `json:"new,omitempty"`
	Managers []string        `json:"managers,omitempty"`
}

// loggedGap is the gap that an event is in.
type loggedGap struct {
	From   keepwatch.Revision  `json:"from"`
	To     keepwatch.Revision  `json:"to"`
	Reason keepwatch.GapReason `json:"reason"`
}

func (l *logger) log(ctx context.Context, v *history.View, args []string) error {
	of, streams, err := l.selected(ctx, v, args)
	if err != nil {
		return err
	}
	l.several, l.types = of.Name == "", len(args) == 0
	after, err := l.points(ctx, v, l.since, streams)
	if err != nil {
		return err
	}
	upTo, err := l.points(ctx, v, l.until, streams)
	if err != nil {
		return err
	}
	if err := l.checkOrder(ctx, v, streams, after, upTo); err != nil {
		return err
	}
	list := l.newList()
	for e, err := range l.merged(ctx, v, of, streams, after, upTo) {
		if err != nil {
			return errors.Join(err, l.out.Flush())
		}
		logged, err := l.logged(e)
		if err == nil {
			err = list.add(logged)
		}
		if err != nil {
			return errors.Join(err, l.out.Flush())
		}
	}
	if list.isEmpty() && !l.types && l.since == nil && l.until == nil {
		return l.nothing(v, of)
	}
	if err := list.end(); err != nil {
		return err
	}
	if err := l.out.Flush(); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// points returns the point of each stream at a moment, which may be in a gap, zero without a moment.
func (l *logger) points(ctx context.Context, v *history.View, m *history.Moment,
	streams []sink.Status) (func(sink.Status) sink.Point, error) {
	if m == nil {
		return func(sink.Status) sink.Point { return sink.Point{} }, nil
	}
	points, err := v.Points(ctx, *m, true, streams...)
	if err != nil {
		return nil, err
	}
	for _, s := range streams {
		if err := v.CheckClock(ctx, m.Time, s); err != nil {
			return nil, err
		}
	}
	return points.Of, nil
}

// merged returns the events of streams: in the order of revisions, of several etcds in that of their times.
func (l *logger) merged(ctx context.Context, v *history.View, of history.Objects, streams []sink.Status,
	after, upTo func(sink.Status) sink.Point) iter.Seq2[history.Event, error] {
	lines := map[int][]iter.Seq2[history.Event, error]{}
	for _, s := range streams {
		if l.until != nil && upTo(s) == (sink.Point{}) {
			continue // it is before everything
		}
		lines[s.Line] = append(lines[s.Line], v.Events(ctx, objectsOf(of, s), after(s), upTo(s)))
	}
	var all []iter.Seq2[history.Event, error]
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		all = append(all, history.Merge(func(a, b history.Event) bool { return a.Point.Before(b.Point) }, lines[line]...))
	}
	return history.Merge(func(a, b history.Event) bool { return a.Time.Before(b.Time) }, all...)
}

// list is what a log is written to.
type list interface {
	add(e LoggedEvent) error
	isEmpty() bool
	end() error
}

func (l *logger) newList() list {
	if l.output == "text" {
		return &logTable{tableRows{rows: printers.GetNewTabWriter(l.out)}, l}
	}
	return &eventList{dataList{out: l.out, output: l.output, name: "events"}}
}

// eventList is a log as JSON or YAML.
type eventList struct{ dataList }

func (l *eventList) add(e LoggedEvent) error { return l.dataList.add(e) }

// nothing returns the error about objects of which the history has no state.
func (o *flags) nothing(v *history.View, of history.Objects) error {
	stream, err := v.StreamOf(of.Resource, of.Namespace)
	if err != nil {
		return err
	}
	what := "no " + of.Resource
	if of.Name != "" {
		what += " named " + of.Name
	}
	if of.Namespace != "" {
		what += " in namespace " + of.Namespace
	}
	return fmt.Errorf("the history has %s, from revision %d to %d", what, stream.First.Revision, stream.Progress.Cursor)
}

// logged returns an event with its fields and managers.
func (o *logger) logged(e history.Event) (LoggedEvent, error) {
	l := LoggedEvent{Type: e.Type, Revision: e.Point.Revision, Epoch: e.Point.Epoch, Time: e.Time, Resource: e.Resource,
		Namespace: e.Namespace}
	if e.Gap != nil {
		l.Gap = &loggedGap{e.Gap.From, e.Gap.To, e.Gap.Reason}
	}
	if e.State == nil {
		return l, nil
	}
	s := e.State
	l.Namespace, l.Name, l.UID = s.Key.Namespace, s.Key.Name, s.UID
	newer, err := o.decoded.of(s)
	if err != nil {
		return l, err
	}
	l.Generation = newer.Generation()
	if e.Type == history.Deleted {
		return l, nil
	}
	switch {
	case e.Prior != nil:
		older, err := o.decoded.of(e.Prior)
		if err != nil {
			return l, err
		}
		changes, writers := field.Changes(older, newer), field.Writers(older, newer)
		l.Fields = o.fields(changes, newer, writers)
		if l.Managers = writers; len(writers) == 0 {
			l.Managers = field.Owners(changes, newer)
		}
	case e.Type == history.Added: // otherwise it has all managers that it ever had
		l.Managers = field.Writers(nil, newer)
	}
	return l, nil
}

// decodedStates are the decoded states of events: the next event of an object has the state of this one as the one
// before.
type decodedStates struct {
	states map[decodedState]*field.State
	bytes  int // of their objects
}

type decodedState struct {
	resource string
	id       int64
}

// maxDecoded bounds the objects of decoded states, which take several times as much.
const maxDecoded = 4 << 20

// of returns a decoded state.
func (d *decodedStates) of(s *sink.State) (*field.State, error) {
	id := decodedState{s.Resource, s.ID}
	if state, ok := d.states[id]; ok {
		return state, nil
	}
	state, err := decodeState(s)
	if err != nil {
		return nil, err
	}
	if d.bytes += len(s.Object); d.states == nil || d.bytes > maxDecoded {
		d.states, d.bytes = map[decodedState]*field.State{}, len(s.Object)
	}
	d.states[id] = state
	return state, nil
}

func decodeState(s *sink.State) (*field.State, error) {
	state, err := field.Decode(s.Object)
	if err != nil {
		return nil, fmt.Errorf("%s at revision %d: %w", objectName(s), s.From.Revision, err)
	}
	return state, nil
}

// fields returns changed fields of a state that managers have written, without --status all of status as one.
func (o *flags) fields(changes []field.Change, newer *field.State, writers []field.Manager) (all []loggedField) {
	for _, c := range changes {
		if !o.status && c.Path.In("status") {
			if n := len(all); n == 0 || all[n-1].Path != "status" {
				all = append(all, loggedField{Path: "status"})
			}
			continue
		}
		l := loggedField{Path: c.Path.String(), Old: c.Old, New: c.New}
		for _, m := range field.WritersOf(c.Path, newer, writers) {
			l.Managers = append(l.Managers, m.String())
		}
		all = append(all, l)
	}
	return all
}

// tableRows are the rows of a table, which are written a few at a time.
type tableRows struct {
	rows interface {
		io.Writer
		Flush() error
	}
	count int
}

// alignedRows bounds the rows that are in memory for their common width; later ones are at least as wide.
const alignedRows = 100

func (t *tableRows) isEmpty() bool { return t.count == 0 }

// added counts a row that was written.
func (t *tableRows) added() error {
	if t.count++; t.count%alignedRows == 0 {
		return t.end()
	}
	return nil
}

func (t *tableRows) end() error {
	if err := t.rows.Flush(); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// logTable is a log as text, with a line for each event.
type logTable struct {
	tableRows
	*logger
}

func (t *logTable) add(e LoggedEvent) error {
	row := func(revision, time, event, object any, rest ...any) {
		cells := []any{revision, time, event}
		if t.several {
			cells = append(cells, object)
		}
		writeRow(t.rows, append(cells, rest...)...)
	}
	if t.count == 0 {
		row("REVISION", "TIME", "EVENT", "OBJECT", "GENERATION", "MANAGERS", "FIELDS")
	}
	if e.Type == history.Missing {
		row(e.Revision, clock(e.Time), e.Type, t.object(e), "", "",
			fmt.Sprintf("missing until revision %d (%s)", e.Gap.To, e.Gap.Reason))
	} else {
		generation, managers := "", names(e.Managers)
		if e.Generation > 0 {
			generation = fmt.Sprint(e.Generation)
		}
		if e.Type == history.Deleted {
			managers = "<not recorded>"
		}
		row(e.Revision, clock(e.Time), e.Type, t.object(e), generation, managers, e.summary())
	}
	return t.added()
}

// object returns the name of an event's object, with its type if there are several. A gap has only a type, and the
// namespace of its stream.
func (t *logTable) object(e LoggedEvent) string {
	var names []string
	if t.types {
		names = append(names, e.Resource)
	}
	for _, name := range []string{e.Namespace, e.Name} {
		if name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, "/")
}

// clock returns a time in the local zone.
func clock(t time.Time) string { return t.Local().Format(time.RFC3339) }

// names returns the names of managers.
func names(managers []field.Manager) string {
	var all []string
	for _, m := range managers {
		if !slices.Contains(all, m.String()) {
			all = append(all, m.String())
		}
	}
	return strings.Join(all, ",")
}

// mostFields bounds the fields that a line shows.
const mostFields = 4

// summary returns the changed fields in one line.
func (e LoggedEvent) summary() string {
	var all []string
	for i, f := range e.Fields {
		if i == mostFields {
			all = append(all, fmt.Sprintf("and %d more", len(e.Fields)-i))
			break
		}
		all = append(all, f.Path)
	}
	text := strings.Join(all, ", ")
	if e.Gap != nil {
		text = strings.TrimSpace(fmt.Sprintf("%s (in the gap from revision %d to %d)", text, e.Gap.From, e.Gap.To))
	}
	return text
}
