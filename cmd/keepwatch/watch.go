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

	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
)

const watchHelp = `Print the objects of one resource type, and then every change of them, for ever.

The stream survives what clients of the Kubernetes API meet: expired revisions, lost and half-open
connections, overload, restarts and upgrades of the server. It ends only when it is asked to, when
its output fails, or when the very first list is refused.

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

Other outputs are kubectl's: there, GAP and SYNCED go to stderr in words. Whatever people should know
goes to stderr.

With --state the place in the stream is kept in a folder. Started again with it, the stream goes on
where it was; if the server's history does not reach back that far, what has changed since, deletions
too, is printed behind a GAP. SYNCED then comes with the server's first bookmark, after about a
minute. After a crash the last events may be printed again, with the same ids; an incomplete last
line in a file is ended before the stream goes on.

Exit codes: 0 asked to end (SIGTERM, --until-synced), 1 error, 2 usage, 130 interrupted.`

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
	flags.DurationVar(&o.idleTimeout, "idle-timeout", kube.DefaultIdleTimeout, "open the watch anew when the server was silent for so long; servers send a bookmark about once a minute")
	flags.BoolVar(&o.bookmarks, "bookmarks", false, "print BOOKMARK lines, about one a minute")
	flags.StringVar(&o.stateDir, "state", "", "keep the place in the stream in this folder, and go on from there")
	flags.BoolVar(&o.untilSynced, "until-synced", false, "end after SYNCED")
	flags.Lookup("request-timeout").Usage = "The length of time to wait for discovery and for one page of a list (for example 30s). The stream itself never times out. Zero means no limit."
	return cmd
}

func (o *watchOptions) run(cmd *cobra.Command, args []string) error {
	arg, err := parseTypeAndName(args)
	if err != nil {
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
	ctx := cmd.Context()
	target, err := o.resolve(ctx, arg, selection)
	if err != nil {
		return ending(ctx, err)
	}
	return ending(ctx, o.follow(ctx, target, output, cmd.OutOrStdout(), cmd.ErrOrStderr()))
}

// errSynced ends a run of --until-synced.
var errSynced = errors.New("synced")

// follow runs the stream. It returns the reason of its end, never nil.
func (o *watchOptions) follow(ctx context.Context, target *watchTarget, output outputFormat, stdout, stderr io.Writer) error {
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
		if state, err = stream.Open(o.stateDir, target.identity(ctx)); err != nil {
			return err
		}
	}
	defer state.Close()
	if o.stateDir != "" && output.lines {
		if err := endTornLine(stdout); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	words := newWords(stderr, stdout, target.name())
	var sink stream.Sink = &narrator{
		Sink:  output.sink(&patientWriter{ctx: ctx, out: stdout}, target),
		words: words, aloud: !output.data,
	}
	if o.untilSynced {
		sink = &untilSynced{Sink: sink, end: func() { cancel(errSynced) }}
	}
	told, err := stream.New(sink, state, stream.Options{Bookmarks: o.bookmarks})
	if err != nil {
		return err
	}
	err = reflector.New(source, told, reflector.Options{Observe: words.notice}).Run(ctx)
	words.clear()
	return err
}

// ending makes an exit code of the reason of an end.
func ending(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errSynced):
		return nil
	case ctx.Err() == nil:
		return err
	case interrupted(ctx):
		return &exitError{code: codeInterrupted}
	}
	return nil
}

// interrupted reports whether it was SIGINT that ended ctx. signal.NotifyContext
// says so by the words of its cause alone.
func interrupted(ctx context.Context) bool {
	return strings.HasPrefix(context.Cause(ctx).Error(), os.Interrupt.String()+" ")
}

// pageSize is --chunk-size as a source understands it.
func pageSize(chunkSize int64) int64 {
	if chunkSize == 0 {
		return -1
	}
	return chunkSize
}

// untilSynced ends the run once a SYNCED has left the process.
type untilSynced struct {
	stream.Sink
	end    func()
	synced bool
}

func (s *untilSynced) Write(m stream.Message) error {
	if _, ok := m.(stream.Synced); ok {
		s.synced = true
	}
	return s.Sink.Write(m)
}

func (s *untilSynced) Flush() error {
	if err := s.Sink.Flush(); err != nil {
		return err
	}
	if s.synced {
		s.end()
	}
	return nil
}

// patientWriter writes to out, but not much longer than ctx lives: a reader that
// has stopped reading must not keep the process from ending.
type patientWriter struct {
	ctx context.Context
	out io.Writer
}

// writeGrace is how long a write may take after the end was asked for, so that
// what can be written is not told twice.
const writeGrace = 500 * time.Millisecond

func (w *patientWriter) Write(text []byte) (int, error) {
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
