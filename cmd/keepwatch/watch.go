package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
)

const watchHelp = `Print the objects of one resource type, and then every change of them, for ever.

The stream survives what clients of the Kubernetes API meet: expired revisions, lost and half-open
connections, overload, restarts and upgrades of the server. The server is waited for at the start
too, with a line on stderr for each try, when it can't be reached, is overloaded or does not accept
the credentials. The stream ends only when it is asked to, when its output or its state can't be
written, or when the server refuses it before it has begun: no such type, no permission, a selector
that it does not know, a certificate that can't be verified.

The default output is a line of JSON for each event:

  {"type":"ADDED","revision":"123","id":"<uid>/123","resource":"pods","object":{...}}

The type is ADDED, MODIFIED or DELETED; the id is the same in every repetition of an event. Besides
events there are

  {"type":"SYNCED","revision":"125","count":41200}   the events so far add up to the state at 125
  {"type":"GAP","from":"125","to":"170","reason":"expired"}
                       the history up to 170 is gone (expired, or downtime: while nobody watched; or
                       rewind: the server went back in time); the events up to the next SYNCED are
                       the difference, and deletions show metadata only
  {"type":"BOOKMARK","revision":"180"}   with --bookmarks: everything up to 180 was printed

Other outputs are kubectl's: there, GAP and SYNCED go to stderr in words, and bookmarks nowhere.
Whatever people should know goes to stderr: a line for each reconnect, and why; connections that were
silent because nothing happened are mentioned once.

With --state the place in the stream is kept in a folder. Started again with it, the stream goes on
where it was; if the server's history does not reach back that far, what has changed since, deletions
too, is printed behind a GAP. SYNCED follows when everything was printed that the server had when it
was asked, at the start: at once if nothing has changed, at the latest with its next bookmark, about a
minute later. After a crash the last events may be printed again, with the same ids; an incomplete
last line in a file is ended before the stream goes on.

Exit codes: 0 asked to end (SIGTERM, or --until-synced is done and its state is written), 1 error
(also one that happens while a signal ends the stream), 2 usage, 130 interrupted (SIGINT). When the
reader of stdout goes away, SIGPIPE ends the process, which shells show as 141.`

const watchExample = `  # Everything that happens to pods, in all namespaces
  keepwatch watch pods -A

  # One deployment, as a table
  keepwatch watch deploy.apps web -o table

  # Append to a file; run again after any end, it goes on
  keepwatch watch widgets.v1.example.com -A --state ./widgets.state >> widgets.ndjson

  # The state as of now, once
  keepwatch watch configmaps -l app=web --until-synced`

// watchOptions are the flags of watch.
type watchOptions struct {
	config        *genericclioptions.ConfigFlags
	output        outputFlags
	allNamespaces bool
	labelSelector string
	fieldSelector string
	chunkSize     int64
	idleTimeout   time.Duration
	bookmarks     bool
	stateDir      string
	untilSynced   bool
}

// newWatchCommand is `keepwatch watch`.
func newWatchCommand() *cobra.Command {
	o := &watchOptions{
		config: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).
			WithWrapConfigFn(func(cfg *rest.Config) *rest.Config {
				cfg.UserAgent = "keepwatch/" + strings.Trim(versionString(), "()")
				return cfg
			}),
		output: newOutputFlags(),
	}
	cmd := &cobra.Command{
		Use:                   "watch TYPE[.VERSION][.GROUP] [NAME] [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Print the objects of one resource type, and every change of them, without losing any",
		Long:                  watchHelp,
		Example:               watchExample,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags := cmd.Flags()
	o.config.AddFlags(flags)
	o.output.addTo(cmd)
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "all namespaces, whatever the context or --namespace says")
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "only objects with these labels, for example key1=value1,key2!=value2")
	flags.StringVar(&o.fieldSelector, "field-selector", "", "only objects with these fields, for example spec.nodeName=n1; the server knows a few fields of each type")
	flags.Int64Var(&o.chunkSize, "chunk-size", 500, "list in pages of this many objects; 0 asks for all in one")
	flags.DurationVar(&o.idleTimeout, "idle-timeout", kube.DefaultIdleTimeout, "open the watch anew when the server was silent for so long, more than 0; servers send a bookmark about once a minute")
	flags.BoolVar(&o.bookmarks, "bookmarks", false, "print BOOKMARK lines, about one a minute")
	flags.StringVar(&o.stateDir, "state", "", "keep the place in the stream in this folder, and go on from there")
	flags.BoolVar(&o.untilSynced, "until-synced", false, "end after SYNCED, once the state is written")
	flags.Lookup("request-timeout").Usage = "The length of time to wait for discovery and for one page of a list (for example 30s). The stream itself never times out. Zero means no limit."
	return cmd
}

func (o *watchOptions) run(cmd *cobra.Command, args []string) error {
	arg, err := parseTypeAndName(args)
	if err != nil {
		return &exitError{codeUsage, err}
	}
	if err := o.check(); err != nil {
		return &exitError{codeUsage, err}
	}
	selection, err := o.selection(arg.name)
	if err != nil {
		return &exitError{codeUsage, err}
	}
	output, err := o.output.complete(cmd)
	if err != nil {
		return &exitError{codeUsage, err}
	}
	ctx, stdout := cmd.Context(), cmd.OutOrStdout()
	if err := mustBeOpen(stdout); err != nil {
		return err
	}
	klog.SetLogger(klog.Logger{}) // drops everything: what matters of the libraries' troubles is in their errors
	status := newStatusPrinter(cmd.ErrOrStderr(), stdout)
	target, err := o.resolve(ctx, status, arg, selection)
	if err == nil {
		err = o.follow(ctx, target, output, stdout, status)
	}
	return ending(ctx, err)
}

// errSynced ends a run of --until-synced.
var errSynced = errors.New("synced")

// follow runs the stream. It returns the reason of its end, never nil.
func (o *watchOptions) follow(ctx context.Context, target *watchTarget, output outputFormat, stdout io.Writer, status *statusPrinter) error {
	source, err := kube.New(target.config, kube.Options{
		Resource: target.resource, Namespace: target.namespace,
		LabelSelector: target.labels, FieldSelector: target.fields,
		Form: output.form, PageSize: pageSize(o.chunkSize), IdleTimeout: o.idleTimeout,
	})
	if err != nil {
		return err
	}
	state := stream.InMemory()
	if o.stateDir != "" {
		id, err := target.identity(ctx, status)
		if err != nil {
			return err
		}
		if state, err = stream.Open(o.stateDir, id); err != nil {
			return err
		}
	}
	if o.stateDir != "" && output.lines {
		err = endTornLine(stdout)
	}
	if err == nil {
		err = o.stream(ctx, source, state, target, output, stdout, status)
	}
	if closed := state.Close(); closed != nil && asked(err) {
		return closed
	}
	return err
}

// asked reports whether the user requested the end.
func asked(end error) bool { return errors.Is(end, errSynced) || errors.Is(end, context.Canceled) }

// stream writes the changes of source since state. It returns the reason why it ended, never
// nil.
func (o *watchOptions) stream(ctx context.Context, source *kube.Source, state stream.State, target *watchTarget, output outputFormat, stdout io.Writer, status *statusPrinter) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	status.resource = target.name()
	sink := &statusWriter{
		Sink:   output.sink(&cancelableWriter{ctx: ctx, out: stdout}, target),
		status: status, printEvents: !output.data,
	}
	options := stream.Options{Bookmarks: o.bookmarks, Kind: target.kind}
	if o.untilSynced {
		options.Synced = func() { cancel(errSynced) }
	}
	changes, err := stream.New(sink, state, options)
	if err != nil {
		return err
	}
	err = reflector.New(source, changes, reflector.Options{Observe: status.observe}).Run(ctx)
	status.clear()
	return err
}

// ending returns the error, with its exit code, for the reason of an end. A failure counts
// even if the user requested the end before it.
func ending(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errSynced):
		return nil
	case ctx.Err() == nil || !errors.Is(err, context.Canceled):
		return err
	case interrupted(ctx):
		return &exitError{code: codeInterrupted}
	}
	return nil
}

// interrupted reports whether SIGINT ended ctx. The text of the cause of
// signal.NotifyContext is the only way to know.
func interrupted(ctx context.Context) bool {
	return strings.HasPrefix(context.Cause(ctx).Error(), os.Interrupt.String()+" ")
}

// pageSize returns --chunk-size in the form of kube.Options.
func pageSize(chunkSize int64) int64 {
	if chunkSize == 0 {
		return -1
	}
	return chunkSize
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
		return r.n, written(r.err)
	case <-w.ctx.Done():
	}
	timer := time.NewTimer(writeGrace)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.n, written(r.err)
	case <-timer.C:
		return 0, context.Cause(w.ctx)
	}
}

func written(err error) error {
	if err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
