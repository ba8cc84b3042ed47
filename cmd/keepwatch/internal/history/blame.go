package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/source/history/field"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// newBlameCommand returns `keepwatch history blame`.
func newBlameCommand() *cobra.Command {
	o := newFlags()
	at := "now"
	cmd := &cobra.Command{
		Use:                   "blame TYPE/NAME --from DATABASE",
		DisableFlagsInUseLine: true,
		Short:                 "Show since when each field of an object has its value, and which tool has written it",
		Long: `Show since when each field of an object has its value, which tool has written it, and the value before.

SINCE is the revision that has written the value; with "<=" the first list had it already, and with
"gap" other values may have been in between. Fields that identify the object, such as metadata.uid,
are not shown. An object that was deleted is shown in its last state.`,
		Example: "  keepwatch history blame deployment/web -n shop --from sqlite:state.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("text", "json", "yaml"); err != nil {
				return err
			}
			m, err := Moment("at", at)
			if err != nil {
				return err
			}
			return o.view(cmd.Context(), func(v *history.View) error {
				return o.blame(cmd.Context(), v, args, m, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	o.addTo(cmd.Flags(), "text, json or yaml")
	cmd.Flags().StringVar(&at, "at", at, "the moment: 2026-11-28T10:42:00Z, 10:42, -15m, revision/4711 or now")
	return cmd
}

// blamedField is a field, and since when it has its value.
type blamedField struct {
	Path     string             `json:"path"`
	Value    json.RawMessage    `json:"value"`
	Was      json.RawMessage    `json:"was,omitempty"`
	Since    keepwatch.Revision `json:"since"`
	Time     time.Time          `json:"time"`
	Existed  bool               `json:"existed,omitempty"` // the first list had the value
	Gap      *loggedGap         `json:"gap,omitempty"`
	Managers []field.Manager    `json:"managers,omitempty"`
}

func (o *flags) blame(ctx context.Context, v *history.View, args []string, m history.Moment, out,
	stderr io.Writer) error {
	of, _, err := o.objects(ctx, v, args)
	if err != nil {
		return err
	}
	if of.Name == "" {
		return exit.Usage(fmt.Errorf("give an object: %s/NAME", args[0]))
	}
	stream, err := v.StreamOf(of.Resource, of.Namespace)
	if err != nil {
		return err
	}
	points, err := v.Points(ctx, m, false, stream)
	if err != nil {
		return err
	}
	last, err := lastLife(v.Events(ctx, of, sink.Point{}, points.Of(stream)))
	if err != nil {
		return err
	}
	if len(last.changes) == 0 {
		states, err := v.Outline(ctx, of)
		if err != nil || len(states) == 0 {
			return errors.Join(err, o.nothing(v, of))
		}
		return fmt.Errorf("%s did not exist until that moment: the first state in the history is of revision %d, %s",
			objectName(&states[0]), states[0].From.Revision, clock(states[0].SeenFrom))
	}
	if end := last.end; end != nil {
		fmt.Fprintf(stderr, "keepwatch: %s was deleted at revision %d, %s; who did it is not recorded\n",
			objectName(end.State), end.Point.Revision, clock(end.Time))
	}
	blamed := o.blamed(last)
	if o.output != "text" {
		return writeData(out, o.output, map[string]any{"fields": blamed})
	}
	return printBlame(out, blamed)
}

// life is what has happened to one object.
type life struct {
	blame   field.Blame
	changes []history.Event // of the states of blame, without them
	end     *history.Event  // nil if it was not deleted
}

// lastLife returns the life of the object that had the name last.
func lastLife(events iter.Seq2[history.Event, error]) (*life, error) {
	l := &life{}
	for e, err := range events {
		switch {
		case err != nil:
			return nil, err
		case e.Type == history.Missing:
		case e.Type == history.Deleted:
			l.end = &e
		default:
			if e.Type != history.Modified {
				l = &life{}
			}
			if err := l.blame.Add(e.State.Object); err != nil {
				return nil, fmt.Errorf("%s at revision %d: %w", objectName(e.State), e.Point.Revision, err)
			}
			e.State, e.Prior = nil, nil
			l.changes = append(l.changes, e)
		}
	}
	return l, nil
}

func (o *flags) blamed(of *life) []blamedField {
	all := []blamedField{}
	for _, f := range of.blame.Fields() {
		if !o.status && f.Path.In("status") || isIdentity(f.Path) {
			continue
		}
		e := of.changes[f.State]
		b := blamedField{
			Path: f.Path.String(), Value: f.Value, Was: f.From, Since: e.Point.Revision, Time: e.Time,
			Existed:  e.Type == history.Existed,
			Managers: f.Managers,
		}
		if e.Gap != nil {
			b.Gap = &loggedGap{e.Gap.From, e.Gap.To, e.Gap.Reason}
		}
		all = append(all, b)
	}
	return all
}

// isIdentity reports whether a field is never written after the object was created, or only by the server.
func isIdentity(p field.Path) bool {
	if p.In("apiVersion") || p.In("kind") {
		return true
	}
	return slices.ContainsFunc([]string{"name", "namespace", "uid", "creationTimestamp", "generation", "generateName",
		"selfLink"},
		func(name string) bool { return p.In("metadata", name) })
}

// printBlame prints a line for each field.
func printBlame(out io.Writer, fields []blamedField) error {
	rows := printers.GetNewTabWriter(out)
	writeRow(rows, "SINCE", "TIME", "MANAGERS", "FIELD", "VALUE", "WAS")
	for _, f := range fields {
		since := f.Since.String()
		switch {
		case f.Existed:
			since = "<=" + since
		case f.Gap != nil:
			since += " (gap)"
		}
		writeRow(rows, since, clock(f.Time), names(f.Managers), f.Path, shortened(f.Value), shortened(f.Was))
	}
	if err := rows.Flush(); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// longestValue bounds a value in a line, in characters.
const longestValue = 60

// shortened returns a value of a line.
func shortened(value json.RawMessage) string {
	runes := []rune(string(value))
	if len(runes) > longestValue {
		runes = slices.Concat(runes[:longestValue-1], []rune("…"))
	}
	return string(runes)
}
