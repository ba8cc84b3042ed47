package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

const syncHelp = `Store the objects of several resource types, and every change of them, until the command is ended:
in a SQLite file, in Postgres, as lines of JSON in files, as CloudEvents in an HTTP server, or as
messages in Kafka or NATS JetStream.

In a database each state of each object is a row, with the revisions and the times between which it was valid.
Rows and cursor are written in one transaction: after any crash, of the command, the database or the server,
each change is stored once. If the server no longer has the history, the difference is stored, deletions
included, and the gap is declared in the table gaps.

Files and HTTP servers receive each change with a stable id, as keepwatch watch prints it. The cursor is in the
directory of --state, and after a crash the last changes may be repeated with the same ids. None is missing.

  sqlite:FILE            a file, which is created; any program may read it at the same time
  postgres://USER@HOST/DATABASE?search_path=SCHEMA
                         tables in that schema, which is created; passwords may come from ~/.pgpass or PGPASSWORD.
                         A second process for the same schema waits as a standby
  files:DIRECTORY        lines of JSON in files, which are closed by size and age. Read the files of manifest.json in
                         order, each up to its number of bytes: whole lines, after any crash
  https://HOST/PATH      an HTTP server that receives CloudEvents 1.0; 2xx means that it has stored them. Other answers
                         are repeated, with the wait of Retry-After; an event that it refuses becomes a line in
                         dead-letters.ndjson in the directory of --state; 410 ends the command
  kafka://HOST/TOPICS    each change is a record, with the object's UID as its key; TOPICS is a template such as
                         k8s.{resource}. Records and cursor are one transaction: read them with read_committed.
                         ?password-file=FILE has the password of kafka://USER@HOST
  nats://HOST/STREAM     each change is a message of JetStream; ?kv=BUCKET in place of STREAM: the current objects.
                         ?password-file=FILE as for Kafka

The resource types of one etcd share its revisions. SYNCED at a revision means that all of them are complete
at it. A type in another etcd, often events, is recognized by its revisions and is complete on its own.

*.example.com stands for every type of the API group example.com, and * for every type but Secrets;
in a namespace (without -A) for those whose objects have a namespace. Types join when their
CustomResourceDefinitions are established, and leave when these are deleted: their objects are then
stored as deleted, within a gap. SYNCED follows again at a revision at which all types are complete.

The file of -f has the same in YAML:

  to: sqlite:state.db
  retention: 90d                        # of states that were replaced or deleted; default: for ever
  thin: 7d:1h                           # after 7 days, of the states of an hour the last one; default: all
                                        # databases: maxSize, beyond which the states that ended first are deleted
                                        # files: state, shape, rotateSize, rotateAge, compress
                                        # https: state, shape, mode, signingKey
  sinks:                                # in place of to, where there are several: each has the settings above, its own
  - to: sqlite:state.db                 # watches and cursors, and a name in messages and metrics
  - {name: archive, to: files:changes, compress: zstd}
  resources:
  - resource: pods                      # TYPE[.VERSION][.GROUP], *.GROUP, or *
    namespace: shop                     # default: all
    selector: app=web
    fieldSelector: spec.nodeName=n1
    fields: [spec.nodeName, "{.spec.containers[*].image}"]
    redact: ["{.spec.containers[*].env[*].value}"]
    drop: [managedFields]
  - resource: deployments.apps
    metadataOnly: true
  - resource: events
    otherEtcd: true                     # complete on its own, also if its revisions seem to fit those of the others

Exit codes: 0 ended on request (SIGTERM, SIGHUP, or --until-synced has stored everything), 1 error, 2 wrong usage,
130 interrupted (SIGINT).`

const syncExample = `  # Pods and deployments of all namespaces, in a file
  keepwatch sync pods,deployments.apps -A --to sqlite:state.db

  # The state of a namespace, once
  keepwatch sync configmaps -n shop --to sqlite:state.db --until-synced

  # Every change as a line of JSON, in compressed files
  keepwatch sync pods,deployments.apps -A --to files:changes --compress zstd

  # Nodes, and every type of a group, also those that are defined later
  keepwatch sync 'nodes,*.example.com' -A --to sqlite:state.db

  # Every type of the cluster but Secrets
  keepwatch sync '*' -A --to sqlite:state.db

  # What a database has
  keepwatch sync status --to sqlite:state.db`

// syncOptions are the flags of sync.
type syncOptions struct {
	cluster.Flags
	file           string
	settings       syncSettings
	namespaceSet   bool
	resource       syncResource // the settings of each type of the arguments
	includeSecrets bool
	untilSynced    bool
	idleTimeout    time.Duration
	endpoint       string
	maxLag         time.Duration
	lease          string              // NAMESPACE/NAME, empty without an election
	representation kube.Representation // of objects, unless a type has metadata only
}

// NewSyncCommand returns `keepwatch sync`.
func NewSyncCommand() *cobra.Command {
	o := &syncOptions{Flags: cluster.NewFlags()}
	cmd := &cobra.Command{
		Use:                   "sync TYPE[.VERSION][.GROUP][,TYPE...][,*.GROUP...][,*] --to DATABASE [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Store the objects of several resource types, and every change of them: SQLite, Postgres, files, HTTP, Kafka, NATS",
		Long:                  syncHelp,
		Example:               syncExample,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags := cmd.Flags()
	o.Flags.AddTo(flags)
	o.addSinkFlags(cmd)
	flags.Var(&o.settings.Retention, "retention",
		"delete states this long after they were replaced or deleted: 90d, or with other times for some types 90d,events=7d; 0 retains them for ever")
	flags.Var(&o.settings.Thin, "thin",
		"thin out old states of a database: 7d:1h retains, after 7 days, one an hour, and the last one before a deletion; 7d:1h,30d:1d after 30 days one a day")
	flags.StringVar(&o.settings.MaxSize, "max-size", "",
		"delete the states that ended first when a SQLite file, or the JSON in Postgres, has more than this size: 10Gi; never current ones")
	flags.StringVar(&o.settings.Shape, "shape", "",
		"format of changes, except in databases and buckets: events, as keepwatch watch prints them, or debezium")
	flags.StringVar(&o.settings.RotateSize, "rotate-size", "",
		"close a file at this size before compression (default 256Mi)")
	flags.Var(&o.settings.RotateAge, "rotate-age", "close a file at this age; 0 means 1h")
	flags.StringVar(&o.settings.Mode, "mode", "",
		"how CloudEvents are in HTTP requests: structured, binary or batched (default structured)")
	flags.StringVar(&o.settings.SigningKey, "signing-key", "",
		"sign HTTP requests with the key in this file, 24 bytes or more in base64")
	flags.StringVar(&o.settings.Compress, "compress", "", "compress closed files: none, gzip or zstd")
	flags.StringArrayVar(&o.resource.Fields, "fields", nil,
		"store these fields only, besides name, namespace and UID: a path such as spec.nodeName or {.spec.containers[*].image}; may be repeated")
	flags.StringArrayVar(&o.resource.Redact, "redact", nil,
		"replace the values at this path by REDACTED, also where annotations repeat the object; may be repeated")
	flags.StringSliceVar(&o.resource.Drop, "drop", nil, "drop these parts of objects; managedFields is the only one")
	flags.BoolVar(&o.resource.MetadataOnly, "metadata-only", false, "request and store only the metadata of objects")
	flags.BoolVar(&o.includeSecrets, "include-secrets", false,
		"permit the resource type secrets: their values are stored as plain text, unless they are redacted")
	flags.BoolVar(&o.untilSynced, "until-synced", false, "end when all types are stored and complete at one revision")
	flags.DurationVar(&o.idleTimeout, "idle-timeout", kube.DefaultIdleTimeout,
		"open a watch again after this time without an event, more than 0")
	flags.StringVar(&o.endpoint, "metrics-bind-address", "0",
		"serve /metrics and /readyz on this address, for example :8080; 0 for none")
	flags.DurationVar(&o.maxLag, "max-lag", 5*time.Minute,
		"/readyz fails when a type was not confirmed to be current for this long")
	flags.StringVar(&o.lease, "leader-elect", "",
		"work only while elected among all processes with this Lease: NAMESPACE/NAME")
	exit.NotEmpty(flags, "signing-key", "leader-elect", "max-size")
	cmd.AddCommand(newSyncStatusCommand())
	return cmd
}

// addSinkFlags adds the flags that name the database.
func (o *syncOptions) addSinkFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.settings.To, "to", "",
		"where changes are stored: sqlite:FILE, postgres://..., files:DIRECTORY, https://..., kafka://... or nats://...")
	cmd.Flags().StringVar(&o.settings.State, "state", "",
		"directory with the cursors of files and HTTP servers (default for files: state in their directory)")
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "read the database and the resource types from this YAML file; - is stdin")
	exit.NotEmpty(cmd.Flags(), "to", "state", "filename")
}

func (o *syncOptions) run(cmd *cobra.Command, args []string) error {
	o.namespaceSet = cmd.Flags().Changed("namespace")
	ctx := cmd.Context()
	settings, err := o.complete(ctx, args)
	if errors.Is(err, context.Canceled) {
		return ending(ctx, err)
	}
	if err == nil {
		err = o.Check()
	}
	if err == nil && o.idleTimeout <= 0 {
		err = fmt.Errorf("--idle-timeout must be more than 0: %v", o.idleTimeout)
	}
	if err == nil {
		err = checkLease(o.lease)
	}
	if err == nil && o.maxLag <= 0 {
		err = fmt.Errorf("--max-lag must be more than 0: %v", o.maxLag)
	}
	if err != nil {
		return exit.Usage(err)
	}
	klog.SetLogger(klog.Logger{}) // drops all logs of the libraries: their errors are returned
	return ending(ctx, o.sync(ctx, settings, cmd.ErrOrStderr()))
}

// sync stores the resources in all sinks, when this process is elected. It returns the reason of the end, never nil.
func (o *syncOptions) sync(ctx context.Context, settings *syncSettings, stderr io.Writer) error {
	serving.SetGCPercent()
	endpoint := newSyncEndpoint(settings.all(), o.maxLag)
	stop, err := endpoint.serve(o.endpoint)
	if err != nil {
		return err
	}
	defer stop()
	return o.whenElected(ctx, newSyncReport(stderr, io.Discard, ""), endpoint, func(ctx context.Context) error {
		return o.followAll(ctx, settings, endpoint, stderr)
	})
}

// followAll stores the resources in each sink, until ctx is done or one of them fails. Each sink has watches and
// cursors of its own, so that none waits for another. It returns the reason of the end, never nil.
func (o *syncOptions) followAll(ctx context.Context, settings *syncSettings, endpoint *syncEndpoint,
	stderr io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if len(settings.Sinks) > 0 {
		stderr = &messages.SharedWriter{Out: stderr}
	}
	var running sync.WaitGroup
	for _, s := range settings.all() {
		running.Go(func() {
			err := o.follow(ctx, settings.Resources, o.destination(settings, s, endpoint, stderr))
			switch {
			case errors.Is(err, apitypes.ErrSynced):
			case len(settings.Sinks) > 0 && ctx.Err() == nil:
				cancel(fmt.Errorf("%s: %w", s.Name, err))
			default:
				cancel(err)
			}
		})
	}
	running.Wait()
	return cmp.Or(context.Cause(ctx), apitypes.ErrSynced)
}

// destination returns what follow needs to store in a sink.
func (o *syncOptions) destination(settings *syncSettings, s *sinkSettings, endpoint *syncEndpoint,
	stderr io.Writer) destination {
	name := ""
	if len(settings.Sinks) > 0 {
		name = s.Name
	}
	report := newSyncReport(stderr, io.Discard, name)
	var running *transfer.Transfer // the sink calls back only while it runs
	return destination{
		open: func() (sink.Sink, error) {
			into, err := s.open(o.lease != "", sinkCallbacks{
				retrying: func(err error, wait time.Duration) { running.Retrying(err, wait) },
				refused:  func(err error) { running.Refused(err) },
				expired:  func(e sink.Expiry) { running.Expired(e) },
			})
			if err == nil && len(s.Retention.of) > 0 {
				into = &retaining{database: into, retention: &s.Retention, resources: settings.Resources, report: report}
			}
			return into, err
		},
		report:     report,
		batchBytes: transactionBytes,
		started: func(t *transfer.Transfer) {
			running = t
			endpoint.add(s.Name, t)
		},
	}
}
