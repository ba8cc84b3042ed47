package history

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/server/past/difference"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/source/history/field"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// newDiffCommand returns `keepwatch history diff`.
func newDiffCommand() *cobra.Command {
	o := newFlags()
	at, and := "", "now"
	cmd := &cobra.Command{
		Use:                   "diff [TYPE | TYPE/NAME] --at MOMENT [--and MOMENT] --from DATABASE",
		DisableFlagsInUseLine: true,
		Short:                 "Show the difference between two moments",
		Long: `Show the difference between the states at two moments, of an object, a type, or everything in a
namespace. With -A that is everything, cluster-scoped objects included.

The text is a unified diff of YAML without status and managedFields, which --status and
--managed-fields add. With -o fields it has a line for each field.`,
		Example: "  keepwatch history diff -n shop --at 10:40 --and 10:45 --from sqlite:state.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check("text", "fields", "json", "yaml"); err != nil {
				return err
			}
			if at == "" {
				return exit.Usage(errors.New("give the moment to compare with: --at 10:40"))
			}
			first, err := Moment("at", at)
			if err != nil {
				return err
			}
			second, err := Moment("and", and)
			if err != nil {
				return err
			}
			return o.view(cmd.Context(), func(v *history.View) error {
				d := differ{flags: o, view: v, out: bufio.NewWriter(cmd.OutOrStdout()), stderr: cmd.ErrOrStderr()}
				return d.run(cmd.Context(), args, first, second)
			})
		},
	}
	o.addTo(cmd.Flags(), "text, fields, json or yaml")
	cmd.Flags().StringVar(&at, "at", at, "the first moment: 2026-11-28T10:42:00Z, 10:42, -15m, revision/4711 or now")
	cmd.Flags().StringVar(&and, "and", and, "the second moment")
	return cmd
}

// differ compares two moments.
type differ struct {
	*flags
	view   *history.View
	out    *bufio.Writer
	stderr io.Writer
	folded int // objects without a difference that is shown
}

// ComparedObject is a difference as JSON and YAML show it.
type ComparedObject struct {
	Type      history.EventType  `json:"type"`
	Resource  string             `json:"resource"`
	Namespace string             `json:"namespace,omitempty"`
	Name      string             `json:"name"`
	Before    keepwatch.Revision `json:"before,omitempty"`
	After     keepwatch.Revision `json:"after,omitempty"`
	Fields    []loggedField      `json:"fields,omitempty"`
}

func (d *differ) run(ctx context.Context, args []string, first, second history.Moment) error {
	of, streams, err := d.selected(ctx, args, first, second)
	if err != nil {
		return err
	}
	from, err := d.view.Points(ctx, first, false, streams...)
	if err != nil {
		return err
	}
	to, err := d.view.Points(ctx, second, false, streams...)
	if err != nil {
		return err
	}
	if from.Lines() > 1 {
		fmt.Fprintf(d.stderr, "keepwatch: the types are in %d etcds: they are compared at the times of the moments\n",
			from.Lines())
	}
	d.reportLater(to, streams)
	list := dataList{out: d.out, output: d.output, name: "objects"}
	show := d.printFields
	switch d.output {
	case "text":
		show = d.printUnified
	case "json", "yaml":
		show = func(c difference.Difference) error { return d.listed(&list, c) }
	}
	different := false
	each := func(c difference.Difference) error {
		different = true
		return show(c)
	}
	for _, stream := range streams {
		if err := difference.Each(ctx, d.view, objectsOf(of, stream), from.Of(stream), to.Of(stream), each); err != nil {
			return errors.Join(err, d.flush())
		}
	}
	if of.Name != "" && !different {
		if err := d.missing(ctx, of, from.Of(streams[0]), to.Of(streams[0])); err != nil {
			return err
		}
	}
	if d.output == "json" || d.output == "yaml" {
		if err := list.end(); err != nil {
			return err
		}
	}
	if d.folded > 0 {
		fmt.Fprintf(d.stderr,
			"keepwatch: %d objects differ in status and managedFields only: see --status and --managed-fields\n", d.folded)
	}
	return d.flush()
}

// missing says that an object existed at none of the moments. It returns an error if it never did.
func (d *differ) missing(ctx context.Context, of history.Objects, moments ...sink.Point) error {
	states, err := d.view.Outline(ctx, of)
	if err != nil {
		return err
	}
	if len(states) == 0 {
		return d.nothing(d.view, of)
	}
	for _, s := range states {
		for _, at := range moments {
			if !at.Before(s.From) && (s.To == nil || at.Before(*s.To)) {
				return nil
			}
		}
	}
	fmt.Fprintf(d.stderr, "keepwatch: %s did not exist at the moments\n", objectName(&states[0]))
	return nil
}

func (d *differ) flush() error {
	if err := d.out.Flush(); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// reportLater names the types whose newest state is not compared: without a word, a comparison that lacks their last
// changes looks as if there were none.
func (d *differ) reportLater(at *history.Points, streams []sink.Status) {
	later := at.Later(streams...)
	if len(later) == 0 {
		return
	}
	types := later[0].ID.Resource
	if n := len(later) - 1; n > 0 {
		types += fmt.Sprintf(" and %d more", n)
	}
	fmt.Fprintf(d.stderr, "keepwatch: compared up to revision %d, the newest that all types have reached; "+
		"the history of %s is newer: name a type to compare all of it\n", at.Of(later[0]).Revision, types)
}

// selected returns what is compared: the objects of the arguments and their stream, or those of several streams that
// were followed at both moments. All objects of another one would seem to be created or deleted.
func (d *differ) selected(ctx context.Context, args []string, moments ...history.Moment) (of history.Objects,
	streams []sink.Status, err error) {
	of, streams, err = d.flags.selected(ctx, d.view, args)
	if err != nil || len(args) > 0 && len(streams) == 1 {
		return of, streams, err
	}
	streams, err = d.followed(ctx, streams, moments)
	return of, streams, err
}

// followed returns the streams that were followed at all of the moments, and says how many were not. If none was, it
// returns all, for the reason.
func (d *differ) followed(ctx context.Context, all []sink.Status, moments []history.Moment) ([]sink.Status, error) {
	streams, leftOut := all, []sink.Status(nil)
	for _, m := range moments {
		followed, others, err := d.view.Followed(ctx, m, streams...)
		if err != nil {
			return nil, err
		}
		if len(followed) == 0 {
			return all, nil
		}
		streams, leftOut = followed, append(leftOut, others...)
	}
	if len(leftOut) > 0 {
		fmt.Fprintf(d.stderr, "keepwatch: not compared, since not followed at both moments: %d types (%s, …)\n",
			len(leftOut), leftOut[0].ID.Resource)
	}
	return streams, nil
}

// printUnified prints a unified diff of an object.
func (d *differ) printUnified(c difference.Difference) error {
	text, err := c.Unified(difference.Shown{Status: d.status, ManagedFields: d.managedFields}, time.Local)
	if err != nil {
		return err
	}
	if text == "" {
		d.folded++
		return nil
	}
	if _, err := d.out.WriteString(text); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// listed adds an object to a list, if fields differ that are shown.
func (d *differ) listed(list *dataList, c difference.Difference) error {
	one, err := d.compared(c)
	if err != nil || one.Type == history.Modified && len(one.Fields) == 0 {
		return err
	}
	return list.add(one)
}

// printFields prints the fields of an object that differ.
func (d *differ) printFields(of difference.Difference) error {
	c, err := d.compared(of)
	if err != nil || c.Type == history.Modified && len(c.Fields) == 0 {
		return err
	}
	fmt.Fprintf(d.out, "%s %s/%s", c.Type, c.Resource, keepwatch.Key{Namespace: c.Namespace, Name: c.Name})
	fmt.Fprintf(d.out, " revision %s > %s\n", revisionOrNone(c.Before), revisionOrNone(c.After))
	for _, f := range c.Fields {
		if f.Path == "status" && f.Old == nil && f.New == nil {
			fmt.Fprintln(d.out, "  status (see --status)")
			continue
		}
		fmt.Fprintf(d.out, "  %s: %s > %s\n", printable(f.Path), cmp.Or(printable(string(f.Old)), "<none>"),
			cmp.Or(printable(string(f.New)), "<none>"))
	}
	return nil // flush has the error of a write
}

func revisionOrNone(r keepwatch.Revision) string {
	if r == 0 {
		return "<none>"
	}
	return r.String()
}

// compared returns the fields of an object that differ. One that was added or deleted has none.
func (d *differ) compared(c difference.Difference) (ComparedObject, error) {
	one := ComparedObject{Type: history.Modified, Resource: c.Resource, Namespace: c.Key.Namespace, Name: c.Key.Name}
	if c.Before != nil {
		one.Before = c.Before.From.Revision
	} else {
		one.Type = history.Added
	}
	if c.After != nil {
		one.After = c.After.From.Revision
	} else {
		one.Type = history.Deleted
	}
	if c.Before == nil || c.After == nil {
		return one, nil
	}
	older, err := decodeState(c.Before)
	if err != nil {
		return one, err
	}
	newer, err := decodeState(c.After)
	if err != nil {
		return one, err
	}
	one.Fields = d.fields(field.Changes(older, newer), newer, field.Writers(older, newer))
	if c.Before.UID != c.After.UID { // what one manager has written is not the difference
		for i := range one.Fields {
			one.Fields[i].Managers = nil
		}
	}
	return one, nil
}
