package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/columns"
	"github.com/keepwatch/keepwatch/server/past/fork"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// newEventsCommand returns `keepwatch history events`.
func newEventsCommand() *cobra.Command {
	o := newFlags()
	ttl := time.Hour
	cmd := &cobra.Command{
		Use:                   "events (TYPE | TYPE/NAME) --from DATABASE",
		DisableFlagsInUseLine: true,
		Short:                 "Show the Events about an object, also expired ones, beside its states of then",
		Long: `Show the Events about an object, or about all of a type in a namespace, in the order in which they
were observed last. Events that say the same are one line.

STATE is what kubectl get shows of the object when the Event was written last, and REVISION the
moment revision/N that has this state, for diff, restore, blame and context; "deleted" is behind the
last revision of an object that was deleted by then, "?" behind one that may not be that of the moment: in
a gap, or not confirmed yet, and "before a restore of etcd" behind one that no moment names any
more. A related object is behind the message. In -o json, "at" is the moment, and "related"
has the same of the other object.

EVENT is current, expired, deleted, or unknown. The API server records neither an expiry nor who
deletes: an Event expired if it ended together with others, since only a lease of etcd ends several
at one revision, or about --event-ttl after its last change. The reason is in -o json.`,
		Example: "  keepwatch history events pod/web-7d4b9-x2x8p -n shop --from sqlite:state.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("text", "json", "yaml"); err != nil {
				return err
			}
			if ttl <= 0 {
				return exit.Usage(fmt.Errorf("--event-ttl must be positive, not %v", ttl))
			}
			return o.view(cmd.Context(), func(v *history.View) error {
				return o.events(cmd.Context(), v, args, ttl, cmd.OutOrStdout())
			})
		},
	}
	o.addDatabaseTo(cmd.Flags(), "text, json or yaml")
	cmd.Flags().DurationVar(&ttl, "event-ttl", ttl,
		"how long the API server keeps an Event after its last change: its flag of that name")
	return cmd
}

// ReportedEvents is what Events say about an object, as JSON and YAML show it.
type ReportedEvents struct {
	Type     string             `json:"type"`
	Reason   string             `json:"reason"`
	Message  string             `json:"message"`
	Reporter string             `json:"reporter,omitempty"`
	Count    int                `json:"count"`
	First    time.Time          `json:"first"`
	Last     time.Time          `json:"last"`
	Event    string             `json:"event"` // the last one
	Revision keepwatch.Revision `json:"revision"`
	Subject  history.Subject    `json:"subject"`
	Object   *objectBeside      `json:"object,omitempty"` // nil if the history does not have the type
	Related  *relatedObject     `json:"related,omitempty"`
	End      *endOfEvent        `json:"end,omitempty"` // nil if it is current
}

// relatedObject is another object that an Event names.
type relatedObject struct {
	history.Subject
	Object *objectBeside `json:"object,omitempty"` // nil if the history does not have the type
}

// objectBeside is the state of an object when an Event about it was written.
type objectBeside struct {
	Resource string             `json:"resource"`           // the TYPE of the other commands
	Revision keepwatch.Revision `json:"revision,omitempty"` // 0 if the history has no state until then
	// At is a moment, as --at takes it, at which the history is known to have the state.
	At      string `json:"at,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Restored reports whether etcd was restored from a backup since: Revision is another moment for --at.
	Restored bool   `json:"restored,omitempty"`
	Summary  string `json:"summary,omitempty"`
	Doubt    string `json:"doubt,omitempty"`
}

// endOfEvent is how an Event has ended.
type endOfEvent struct {
	Type     history.EndingType `json:"type"`
	Because  string             `json:"because"`
	Revision keepwatch.Revision `json:"revision"`
	Time     time.Time          `json:"time"`
}

func (o *flags) events(ctx context.Context, v *history.View, args []string, ttl time.Duration,
	out io.Writer) error {
	about, t, err := o.about(ctx, v, args)
	if err != nil {
		return err
	}
	about.TTL = ttl
	found, err := v.Reported(ctx, about)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("the history has no Events about %s", strings.TrimSpace(strings.Join(args, "/")+
			inNamespace(about.Namespace)))
	}
	types, err := v.Types(ctx)
	if err != nil {
		return err
	}
	list := o.newReportedList(out, about.Name == "")
	states := statesOf{view: v, of: map[objectOf][]sink.State{}, summaries: map[string]summary{}}
	for _, r := range found {
		one := ReportedEvents{
			Type: r.Type, Reason: r.Reason, Message: r.Message, Reporter: r.Reporter, Count: r.Count, First: r.First,
			Last:  r.Last,
			Event: r.State.Key.String(), Revision: r.State.From.Revision, Subject: r.Subject,
		}
		if r.End.Type != history.Current {
			one.End = &endOfEvent{r.End.Type, r.End.Because, r.End.Point.Revision, r.End.Time}
		}
		if one.Object, err = states.beside(ctx, &r, r.Subject, t); err != nil {
			return err
		}
		if r.Related != nil {
			one.Related = &relatedObject{Subject: *r.Related}
			if one.Related.Object, err = states.beside(ctx, &r, *r.Related, r.Related.TypeIn(types)); err != nil {
				return err
			}
		}
		if err := list.add(one); err != nil {
			return err
		}
	}
	return list.end()
}

// statesOf are the states of objects, which many Events in a row may be about.
type statesOf struct {
	view      *history.View
	of        map[objectOf][]sink.State
	count     int
	summaries map[string]summary // by resource
}

type objectOf struct {
	resource string
	key      keepwatch.Key
}

// beside returns the state of an object of a type when an Event that names it was written, nil if the history does not
// have the type.
func (s *statesOf) beside(ctx context.Context, r *history.Reported, of history.Subject,
	t *history.Type) (*objectBeside, error) {
	if t == nil {
		return nil, nil
	}
	if !t.Namespaced {
		of.Namespace = ""
	}
	if _, err := s.view.StreamOf(t.Resource, of.Namespace); err != nil {
		return nil, nil // other namespaces are stored
	}
	all, err := s.get(ctx, t.Resource, of)
	if err != nil {
		return nil, err
	}
	b, err := s.view.Beside(ctx, r, of, t.Resource, all)
	if err != nil {
		return nil, err
	}
	shown, known := s.summaries[t.Resource]
	if !known {
		if shown, err = newSummary(t); err != nil {
			return nil, err
		}
		s.summaries[t.Resource] = shown
	}
	o, err := shown.beside(b, r.Last)
	if err == nil {
		o.Resource = t.Resource
	}
	return o, err
}

// maxStates bounds the states in memory. Those of one object may be more.
const maxStates = 100_000

func (s *statesOf) get(ctx context.Context, resource string, of history.Subject) ([]sink.State, error) {
	key := objectOf{resource, keepwatch.Key{Namespace: of.Namespace, Name: of.Name}}
	if all, known := s.of[key]; known {
		return all, nil
	}
	all, err := s.view.Outline(ctx, history.Objects{Resource: resource, Namespace: of.Namespace, Name: of.Name})
	if err != nil {
		return nil, err
	}
	if s.count += 1 + len(all); s.count > maxStates {
		clear(s.of)
		s.count = 1 + len(all)
	}
	s.of[key] = all
	return all, nil
}

func inNamespace(name string) string {
	if name == "" {
		return ""
	}
	return " in namespace " + name
}

// about returns which Events the arguments ask for, and the type of the objects, nil if the history has only the
// Events.
func (o *flags) about(ctx context.Context, v *history.View,
	args []string) (history.About, *history.Type, error) {
	of, t, err := o.objects(ctx, v, args)
	if err == nil {
		return history.About{Kind: t.Kind, Group: t.Group(), Namespace: of.Namespace, Name: of.Name}, t, nil
	}
	if _, ok := errors.AsType[*exit.Error](err); ok {
		return history.About{}, nil, err
	}
	arg, _ := cluster.ParseTypeAndName(args) // it has no error, or objects had it
	kind := strings.ToLower(arg.Kind)
	known := fork.KnownType(kind)
	if known == nil {
		known = fork.KnownType(kind + "s")
	}
	if known == nil {
		return history.About{}, nil, err
	}
	_, group, _ := strings.Cut(kind, ".")
	about := history.About{Kind: known.Kind, Group: group, Name: arg.Name}
	if !known.Namespaced {
		return about, nil, nil
	}
	about.Namespace, err = o.namespace()
	return about, nil, err
}

// summary says of an object what kubectl get shows of it.
type summary struct {
	table  *readpath.Table // nil if there are no columns but name and age
	scheme *runtime.Scheme
	kind   schema.GroupVersionKind
}

// newSummary returns the summary of the objects of a type.
func newSummary(t *history.Type) (s summary, err error) {
	if s.scheme, err = builtin.PublicScheme(); err != nil {
		return s, err
	}
	s.kind = schema.GroupVersionKind{Group: t.Group(), Version: t.Version, Kind: t.Kind}
	if s.scheme.Recognizes(s.kind) {
		s.table = columns.Of(schema.GroupResource{Group: t.Group(), Resource: t.Name()})
	}
	return s, nil
}

func (s summary) beside(b history.Beside, at time.Time) (*objectBeside, error) {
	o := &objectBeside{Deleted: b.Deleted, Restored: b.Restored, Doubt: b.Doubt}
	if b.State == nil {
		return o, nil
	}
	o.Revision = b.State.From.Revision
	if b.At > 0 {
		o.At = history.Moment{Revision: b.At}.String()
	}
	var err error
	if o.Summary, err = s.of(b.State.Object, at); err != nil {
		return nil, fmt.Errorf("%s at revision %d: %w", objectName(b.State), o.Revision, err)
	}
	return o, nil
}

// of returns the cells of an object except its name and age, with ages relative to a time.
func (s summary) of(text []byte, at time.Time) (string, error) {
	if s.table == nil {
		return "", nil
	}
	typed, err := s.scheme.New(s.kind)
	if err != nil {
		return "", err
	}
	if err := utiljson.Unmarshal(text, typed); err != nil {
		return "", err
	}
	row, err := s.table.Row(typed)
	if err != nil {
		return "", err
	}
	var all []string
	for i, c := range s.table.Columns {
		if c.Priority > 0 || c.Name == "Name" || c.Name == "Age" || i >= len(row.Cells) {
			continue
		}
		cell := row.Cells[i]
		if since, ok := cell.(readpath.Since); ok {
			cell = since.At(at)
		}
		all = append(all, fmt.Sprint(cell))
	}
	return strings.Join(all, " "), nil
}

// reportedList is what Events say, as it is written.
type reportedList interface {
	add(e ReportedEvents) error
	end() error
}

// newReportedList returns the list of an output, whose lines have the object if there may be several.
func (o *flags) newReportedList(out io.Writer, several bool) reportedList {
	if o.output == "text" {
		return &reportedTable{tableRows{rows: printers.GetNewTabWriter(out)}, several}
	}
	return reportedData{&dataList{out: out, output: o.output, name: "events"}}
}

// reportedData is the list as JSON or YAML.
type reportedData struct{ *dataList }

func (l reportedData) add(e ReportedEvents) error { return l.dataList.add(e) }

// reportedTable is the list as text, with a line for what was said.
type reportedTable struct {
	tableRows
	several bool
}

func (t *reportedTable) add(e ReportedEvents) error {
	row := func(last, count, first, object any, rest ...any) {
		cells := []any{last, count, first}
		if t.several {
			cells = append(cells, object)
		}
		writeRow(t.rows, append(cells, rest...)...)
	}
	if t.count == 0 {
		row("LAST SEEN", "COUNT", "FIRST SEEN", "OBJECT", "TYPE", "REASON", "EVENT", "REVISION", "STATE", "MESSAGE")
	}
	end := history.Current
	if e.End != nil {
		end = e.End.Type
	}
	revision, state := e.Object.text()
	subject := keepwatch.Key{Namespace: e.Subject.Namespace, Name: e.Subject.Name}
	row(clock(e.Last), e.Count, clock(e.First), subject, e.Type, e.Reason, end, revision, state,
		strings.Join(strings.Fields(e.Message+e.Related.text()), " "))
	return t.added()
}

// text returns what a line says of a related object, "" if there is none.
func (o *relatedObject) text() string {
	if o == nil {
		return ""
	}
	text := fmt.Sprintf(" (related: %s %s", o.Kind, keepwatch.Key{Namespace: o.Namespace, Name: o.Name})
	if o.Object != nil {
		revision, _ := o.Object.text()
		text += ", " + revision
	}
	return text + ")"
}

// text returns the revision and the state of an object in a table.
func (o *objectBeside) text() (revision, state string) {
	switch {
	case o == nil:
		return "<not stored>", ""
	case o.Revision == 0 && o.Doubt != "":
		return "<unknown>", ""
	case o.Revision == 0:
		return "<none>", ""
	}
	revision = o.Revision.String()
	if o.At != "" {
		revision = strings.TrimPrefix(o.At, "revision/")
	}
	if o.Deleted {
		revision += " deleted"
	}
	if o.Doubt != "" {
		revision += "?"
	}
	if o.Restored {
		revision += " before a restore of etcd"
	}
	return revision, o.Summary
}
