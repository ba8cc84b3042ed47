package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/source/history/field"
)

// newLogCommand returns `keepwatch history log`.
func newLogCommand() *cobra.Command {
	o := newFlags()
	cmd := &cobra.Command{
		Use:                   "log (TYPE | TYPE/NAME) --from DATABASE",
		DisableFlagsInUseLine: true,
		Short:                 "Show what has happened to an object, or to all of a type",
		Long: `Show what has happened to an object, or to all of a type in a namespace, in the order of revisions.

EVENT is ADDED, MODIFIED or DELETED; EXISTED for an object of the first list: when it was created or
last changed is not known; and GAP where a part of the history is missing. A deletion within a gap
has the revision of the gap's end. TIME is when the change was stored. MANAGERS are the tools that
have written the state, and FIELDS what they have changed.`,
		Example: "  keepwatch history log deployment/web -n shop --from sqlite:state.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("text", "json", "yaml"); err != nil {
				return err
			}
			if len(args) == 0 || args[0] == "*" {
				return exit.Usage(errors.New("give the type of the resource, for example pods; " +
					"'keepwatch history diff -A --at -15m' compares all types"))
			}
			return o.view(cmd.Context(), func(v *history.View) error { return o.log(cmd.Context(), v, args, cmd.OutOrStdout()) })
		},
	}
	o.addTo(cmd.Flags(), "text, json or yaml")
	return cmd
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

func (o *flags) log(ctx context.Context, v *history.View, args []string, out io.Writer) error {
	of, _, err := o.objects(ctx, v, args)
	if err != nil {
		return err
	}
	events, err := v.Events(ctx, of)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return o.nothing(v, of)
	}
	logged := []LoggedEvent{}
	for _, e := range events {
		l, err := o.logged(e)
		if err != nil {
			return err
		}
		logged = append(logged, l)
	}
	if o.output != "text" {
		return writeData(out, o.output, map[string]any{"events": logged})
	}
	return printLog(out, logged, of.Name == "")
}

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
func (o *flags) logged(e history.Event) (LoggedEvent, error) {
	l := LoggedEvent{Type: e.Type, Revision: e.Point.Revision, Epoch: e.Point.Epoch, Time: e.Time}
	if e.Gap != nil {
		l.Gap = &loggedGap{e.Gap.From, e.Gap.To, e.Gap.Reason}
	}
	if e.State == nil {
		return l, nil
	}
	s := e.State
	l.Resource, l.Namespace, l.Name, l.UID = s.Resource, s.Key.Namespace, s.Key.Name, s.UID
	var object struct{ Metadata struct{ Generation int64 } }
	if err := json.Unmarshal(s.Object, &object); err != nil {
		return l, fmt.Errorf("%s at revision %d: %w", objectName(s), s.From.Revision, err)
	}
	l.Generation = object.Metadata.Generation
	if e.Type == history.Deleted {
		return l, nil
	}
	switch {
	case e.Prior != nil:
		older := e.Prior.Object
		changes, err := field.Changes(older, s.Object)
		if err != nil {
			return l, fmt.Errorf("%s at revision %d: %w", objectName(s), s.From.Revision, err)
		}
		l.Fields = o.fields(changes, older, s.Object)
		if l.Managers = field.Writers(older, s.Object); len(l.Managers) == 0 {
			l.Managers = field.Owners(changes, s.Object)
		}
	case e.Type == history.Added: // otherwise it has all managers that it ever had
		l.Managers = field.Writers(nil, s.Object)
	}
	return l, nil
}

// fields returns changed fields, without --status all of status as one.
func (o *flags) fields(changes []field.Change, older, newer []byte) (all []loggedField) {
	for _, c := range changes {
		if !o.status && c.Path.In("status") {
			if n := len(all); n == 0 || all[n-1].Path != "status" {
				all = append(all, loggedField{Path: "status"})
			}
			continue
		}
		l := loggedField{Path: c.Path.String(), Old: c.Old, New: c.New}
		for _, m := range field.WritersOf(c, older, newer) {
			l.Managers = append(l.Managers, m.String())
		}
		all = append(all, l)
	}
	return all
}

// printLog prints a line for each event.
func printLog(out io.Writer, events []LoggedEvent, several bool) error {
	rows := printers.GetNewTabWriter(out)
	object := ""
	if several {
		object = "OBJECT\t"
	}
	fmt.Fprintln(rows, "REVISION\tTIME\tEVENT\t"+object+"GENERATION\tMANAGERS\tFIELDS")
	for _, e := range events {
		if several {
			object = keepwatch.Key{Namespace: e.Namespace, Name: e.Name}.String() + "\t"
		}
		if e.Type == history.Missing {
			fmt.Fprintf(rows, "%d\t%s\t%s\t%s\t\tmissing until revision %d (%s)\n", e.Revision, clock(e.Time), e.Type,
				strings.Repeat("\t", strings.Count(object, "\t")), e.Gap.To, e.Gap.Reason)
			continue
		}
		generation, managers := "", names(e.Managers)
		if e.Generation > 0 {
			generation = fmt.Sprint(e.Generation)
		}
		if e.Type == history.Deleted {
			managers = "<not recorded>"
		}
		fmt.Fprintf(rows, "%d\t%s\t%s\t%s%s\t%s\t%s\n", e.Revision, clock(e.Time), e.Type, object, generation, managers,
			e.summary())
	}
	if err := rows.Flush(); err != nil {
		return exit.WriteError(err)
	}
	return nil
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
