package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/sinks/statedir"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

const watchHelp = `Print the objects of resource types, and then every change of them, until the command is ended.

The stream resumes after expired revisions, lost and half-open connections, overload, restarts and
upgrades of the server. At the start it also waits for a server that cannot be reached, is overloaded
or does not accept the credentials, with a line on stderr for each attempt. The stream ends only on
request, when its output or its state cannot be written (a full disk of the state is waited for), or
when the server refuses it before the first success: unknown type, no permission, unknown selector, a
certificate that cannot be verified. A type without a version is followed in another one if the server
no longer serves the first.

The default output is a line of JSON for each event:

  {"type":"ADDED","revision":"123","id":"<uid>/123","resource":"pods","object":{...}}

The type is ADDED, MODIFIED or DELETED; the id is the same in every repetition of an event. Other
lines are

  {"type":"SYNCED","revision":"125","count":41200,"resources":["pods"]}
                       every event of these types up to 125 was printed; of several types, later ones
                       may be among them
  {"type":"GAP","from":"125","to":"170","reason":"expired","resource":"pods"}
                       the history up to 170 is lost: expired; downtime (expired while the stream was
                       not running); or rewind (the server was restored from a backup). The events up
                       to the next SYNCED are the difference; deleted objects have metadata only
  {"type":"BOOKMARK","revision":"180","resources":["pods"]}
                       with --bookmarks: all events up to 180 were printed

Several types (pods,deployments.apps or *.example.com) in one etcd have one SYNCED; a type in another
etcd, often events, has its own. When a type of *.example.com appears or is deleted, SYNCED follows again.
In a namespace (without -A) *.example.com is the types whose objects have a namespace.

The other output formats are kubectl's. With them, GAP and SYNCED are messages on stderr, and
bookmarks are not shown. Stderr has a line for each reconnect and its reason; reconnects of a watch
without changes are reported once.

With --state the cursors are stored in a folder. Started again with it, each type resumes
after its last stored event; if the server's history is too short, GAP and the difference follow,
deletions included. SYNCED follows after all events up to the revision that the server had at the
start: until then a watch lasts 3 seconds, at whose end the server confirms the revision.
After a crash the last events may be printed again, with the same ids; an incomplete last line in a
file is completed with a line end before the stream resumes.

With --acknowledge the consumer writes a line to stdin for each line that it has handled, in the order
of stdout; its content does not matter. The cursor moves only then: whatever is killed, the events that
were not acknowledged are printed again by the next run, with the same ids, and after a kill of the
consumer nothing is lost in a pipe. The end of stdin ends the command, with exit code 0.

Exit codes: 0 ended on request (SIGTERM, SIGHUP, the end of stdin with --acknowledge, or --until-synced has
stored its state), 1 error (also one that occurs while a signal ends the stream), 2 wrong usage,
130 interrupted (SIGINT). If the reader of stdout closes it, also by its own end, SIGPIPE ends the
process at once, which shells show as 141. Nothing shows who reads a file: a process that appends to
one needs a supervisor that ends it.`

const watchExample = `  # All changes of pods, in all namespaces
  keepwatch watch pods -A

  # Two types, complete at one revision
  keepwatch watch pods,deployments.apps -A

  # One deployment, as a table
  keepwatch watch deploy.apps web -o table

  # Append to a file; run again after any end, it resumes
  keepwatch watch widgets.v1.example.com -A --state ./widgets.state >> widgets.ndjson

  # The current state, once
  keepwatch watch configmaps -l app=web --until-synced`

// watchOptions are the flags of watch.
type watchOptions struct {
	cluster.Flags
	output      outputFlags
	idleTimeout time.Duration
	bookmarks   bool
	acknowledge bool
	stateDir    string
	untilSynced bool
}

// NewWatchCommand returns `keepwatch watch`.
func NewWatchCommand() *cobra.Command {
	o := &watchOptions{Flags: cluster.NewFlags(), output: newOutputFlags()}
	cmd := &cobra.Command{
		Use:                   "watch TYPE[.VERSION][.GROUP][,TYPE...] [NAME] [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Print the objects of resource types, and every change of them, without losing any",
		Long:                  watchHelp,
		Example:               watchExample,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags := cmd.Flags()
	o.Flags.AddTo(flags)
	o.output.addTo(cmd)
	flags.DurationVar(&o.idleTimeout, "idle-timeout", kube.DefaultIdleTimeout,
		"open the watch again after this time without an event, more than 0; servers send a bookmark about once a minute")
	flags.BoolVar(&o.bookmarks, "bookmarks", false,
		"print BOOKMARK lines: about one a minute, and of several types also after changes")
	flags.BoolVar(&o.acknowledge, "acknowledge", false,
		"move the cursor when stdin has a line for each line that was printed, and end with stdin")
	flags.StringVar(&o.stateDir, "state", "", "store the cursor in this folder, and resume from there")
	flags.BoolVar(&o.untilSynced, "until-synced", false, "end after SYNCED, when the state is written")
	exit.NotEmpty(flags, "state")
	flags.Lookup(
		"request-timeout").Usage = "The length of time to wait for discovery and for one page of a list (for example 30s). The stream itself never times out. Zero means no limit."
	return cmd
}

func (o *watchOptions) run(cmd *cobra.Command, args []string) error {
	resources, err := o.resources(args)
	if err == nil {
		err = o.Check()
	}
	if err == nil && o.idleTimeout <= 0 {
		err = fmt.Errorf("--idle-timeout must be more than 0: %v", o.idleTimeout)
	}
	if err != nil {
		return exit.Usage(err)
	}
	output, err := o.output.complete(cmd)
	if err == nil && o.acknowledge && !output.data {
		err = errors.New("--acknowledge needs the output ndjson: other outputs have no line for each event")
	}
	if err != nil {
		return exit.Usage(err)
	}
	ctx, stdout := cmd.Context(), cmd.OutOrStdout()
	if err := checkOpen(stdout); err != nil {
		return err
	}
	klog.SetLogger(klog.Logger{}) // drops all logs of the libraries: their errors are returned
	return ending(ctx, whileRead(ctx, stdout, func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		p := newPrinted(ctx, cancel, o, output, stdout)
		if o.acknowledge {
			p.acknowledge(cmd.InOrStdin())
		}
		return o.follow(ctx, resources, p, cmd.ErrOrStderr())
	}))
}

// severalTypes reports whether the arguments name several types: a list or a pattern.
func severalTypes(args []string) bool { return len(args) > 0 && strings.ContainsAny(args[0], ",*") }

// resources returns what the arguments and flags select.
func (o *watchOptions) resources(args []string) ([]syncResource, error) {
	if !severalTypes(args) {
		arg, err := cluster.ParseTypeAndName(args)
		if err != nil {
			return nil, err
		}
		selection, err := o.Selection(arg.Name)
		return []syncResource{{Resource: arg.Kind, name: arg.Name, selection: selection}}, err
	}
	if len(args) > 1 {
		return nil, fmt.Errorf("a name can't be combined with several types: give TYPE,TYPE or TYPE NAME, not %q",
			strings.Join(args, " "))
	}
	types := &syncOptions{Flags: o.Flags}
	if err := types.addArguments(args); err != nil {
		return nil, err
	}
	return types.settings.Resources, types.settings.completeResources()
}

// follow prints the resources: it is keepwatch sync with the output as its sink. It returns the reason of the end,
// never nil.
func (o *watchOptions) follow(ctx context.Context, resources []syncResource, p *printed, stderr io.Writer) error {
	all := &syncOptions{
		Flags: o.Flags, representation: p.output.representation, idleTimeout: o.idleTimeout,
		untilSynced: o.untilSynced, includeSecrets: true,
	}
	p.report = newSyncReport(stderr, p.stdout, "")
	if p.output.data {
		p.report.onCut = p.cut
	}
	return all.follow(ctx, resources, destination{
		open: func() (sink.Sink, error) { return o.sink(p), nil }, report: p.report, started: func(*transfer.Transfer) {},
		unstored: o.stateDir == "",
	})
}

// sink returns the sink of the output: with --state its streams are stored in the folder.
func (o *watchOptions) sink(p *printed) sink.Sink {
	if o.stateDir == "" {
		return &unstored{Receiver: p, states: map[stream.Identity]stream.State{}}
	}
	return statedir.New(o.stateDir, p)
}

// ending returns the error, with its exit code, for the reason of an end. A failure counts
// even if the user requested the end before it.
func ending(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, apitypes.ErrSynced), errors.Is(err, errConsumerEnded):
		return nil
	case ctx.Err() == nil || !errors.Is(err, context.Canceled):
		return err
	case exit.Interrupted(ctx):
		return &exit.Error{Code: exit.CodeInterrupted}
	}
	return nil
}

// cancelableWriter writes to out until shortly after ctx is done: a reader that stopped
// reading must not keep the process from ending.
type cancelableWriter struct {
	ctx context.Context
	out io.Writer
}

// writeGrace is how long a write may take after ctx is done, so that events that can be
// written are not delivered again by the next run.
const writeGrace = 500 * time.Millisecond

func (w *cancelableWriter) Write(text []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := w.out.Write(text)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, exit.WriteError(r.err)
	case <-w.ctx.Done():
	}
	timer := time.NewTimer(writeGrace)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.n, exit.WriteError(r.err)
	case <-timer.C:
		return 0, context.Cause(w.ctx)
	}
}
