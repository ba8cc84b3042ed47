package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// newSyncStatusCommand returns `keepwatch sync status`.
func newSyncStatusCommand() *cobra.Command {
	o := &syncOptions{}
	cmd := &cobra.Command{
		Use:                   "status --to DATABASE",
		DisableFlagsInUseLine: true,
		Short:                 "Show how far a database of keepwatch sync has come",
		Long: `Show how far a database of keepwatch sync has come, also while a sync writes to it.

REVISION is the one up to which all changes are stored, SINCE the one from which on none is missing, and
WRITTEN the time since the last transaction. OBJECTS are the current ones, and REWINDS counts how often the
source was restored from a backup. GAP is the reason of a gap whose difference is not complete.`,
		Args: exit.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.status(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.addSinkFlags(cmd)
	return cmd
}

func (o *syncOptions) status(ctx context.Context, out io.Writer) error {
	settings := &o.settings
	if o.file != "" {
		var err error
		if settings, err = o.readFile(ctx, nil); errors.Is(err, context.Canceled) {
			return ending(ctx, err)
		} else if err != nil {
			return exit.Usage(err)
		}
	}
	if err := o.checkSinks(settings); err != nil {
		return exit.Usage(err)
	}
	var failed error
	for i, sink := range settings.all() {
		if len(settings.Sinks) > 0 {
			if _, err := fmt.Fprintf(out, "%s%s:\n", strings.Repeat("\n", min(i, 1)), sink.Name); err != nil {
				return exit.WriteError(err)
			}
		}
		if err := sink.printStatus(ctx, out); len(settings.Sinks) > 0 && err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", sink.Name, err))
		} else if err != nil {
			return err
		}
	}
	return failed
}

// printStatus prints how far a sink has come.
func (s *sinkSettings) printStatus(ctx context.Context, out io.Writer) error {
	database, err := s.open(false, sinkCallbacks{})
	if err != nil {
		return err
	}
	all, err := database.Status(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no sync has written to this database yet")
	}
	return printSyncStatus(out, all, time.Now())
}

// printSyncStatus prints a row for each stream, and a line for each line of revisions.
func printSyncStatus(out io.Writer, all []sink.Status, now time.Time) error {
	rows := printers.GetNewTabWriter(out)
	fmt.Fprintln(rows, "RESOURCE\tNAMESPACE\tREVISION\tSINCE\tOBJECTS\tREWINDS\tGAP\tWRITTEN")
	lines := map[int][]sink.Progress{}
	var newest time.Time
	for _, s := range all {
		namespace, gap, written := "<all>", "<none>", "<never>"
		if s.ID.Namespace != "" {
			namespace = s.ID.Namespace
		}
		switch {
		case !s.Active:
			gap = "<not followed>"
		case s.Progress.Gap != "":
			gap = string(s.Progress.Gap)
		}
		if !s.Time.IsZero() {
			written = duration.HumanDuration(max(0, now.Sub(s.Time)))
		}
		if s.Time.After(newest) {
			newest = s.Time
		}
		fmt.Fprintf(rows, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", s.ID.Resource, namespace, s.Progress.Cursor, s.Progress.Since,
			s.Count, s.Progress.Epoch, gap, written)
		if s.Active {
			lines[s.Line] = append(lines[s.Line], s.Progress)
		}
	}
	if err := rows.Flush(); err != nil {
		return exit.WriteError(err)
	}
	if newest.Sub(now) > transfer.MaxApart {
		if _, err := fmt.Fprintf(out, "the clock shows %s, and the newest transaction is of %s\n",
			now.UTC().Format(time.RFC3339), newest.UTC().Format(time.RFC3339)); err != nil {
			return exit.WriteError(err)
		}
	}
	var numbers []int
	for line := range lines {
		numbers = append(numbers, line)
	}
	slices.Sort(numbers)
	for _, line := range numbers {
		text := "not complete at any revision yet"
		if cut, ok := sink.CutOf(lines[line]); ok {
			text = fmt.Sprintf("complete at revision %d", cut.Revision)
		}
		if _, err := fmt.Fprintf(out, "%d of %d: %s\n", len(lines[line]), len(all), text); err != nil {
			return exit.WriteError(err)
		}
	}
	return nil
}
