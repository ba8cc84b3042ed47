// Keepwatch serves the Kubernetes API and writes the changes of a resource as a stream.
// `keepwatch --help` describes its subcommands. Under the name kube-apiserver, etcd or kubectl it is that program;
// `keepwatch assets` makes the names.
//
// Exit codes: 0 ended on request, 1 error, 2 wrong usage, 130 interrupted; audit has diff's. Data goes to
// stdout, messages to stderr.
//
//	main.go            runs a subcommand, and returns its exit code
//	serve.go           keepwatch serve
//	serve_history.go   keepwatch serve --history, keepwatch history context
//	assets.go          keepwatch assets, which gives this program the names of the three below
//	assets_apiserver.go  kube-apiserver
//	assets_etcd.go     etcd, which stores nothing
//	assets_exact.go    --exact: keepwatch-apiserver, and etcd, which stores data
//	assets_kubectl.go  kubectl
//	assets_parent.go   ends a server with the process that started it
//	serve_log.go       removes reports about clients from the log
//	proxy.go           keepwatch proxy
//	proxy_serving.go   its certificate
//	proxy_credentials.go  its authority and its token
//	connection.go      the connection to the cluster, and the words for a missing one
//	kubeconfig.go      writes the kubeconfigs of proxy and faults
//	proxy_audit.go     its audit log: kube-apiserver's flags
//	proxy_rights.go    the ClusterRole that it needs
//	top.go             keepwatch top
//	resource.go        the flags that select objects; resolves the resource, and identifies the cluster
//	watch.go           keepwatch watch
//	watch_printed.go   the output as the receiver of streams: lines, SYNCED and BOOKMARK
//	watch_output.go    output formats
//	watch_acknowledge.go  --acknowledge: the cursor moves when the consumer has handled the lines
//	watch_status.go    messages on stderr
//	watch_reader.go    ends with the reader of its output: watch_reader_unix.go, watch_reader_other.go
//	sync.go            keepwatch sync
//	sync_config.go     the resources and the sink of sync: flags and file
//	sync_sinks.go      the sinks of a configuration
//	sync_sink.go       one of them: its settings, and how it is opened
//	sync_elect.go      elects one of several processes by a Lease
//	sync_run.go        runs the transfer of sync: package stream/transfer/apitypes
//	sync_report.go     messages of sync on stderr
//	sync_metrics.go    metrics and readiness of sync
//	sync_status.go     keepwatch sync status
//	history.go         keepwatch history: the database, the flags
//	history_log.go     keepwatch history log
//	history_diff.go    keepwatch history diff
//	history_blame.go   keepwatch history blame
//	history_events.go  keepwatch history events
//	history_restore.go  keepwatch history restore: the flags, what is selected, the report
//	history_restoration.go  what is written to the cluster, and in which order
//	metrics_endpoint.go  --metrics-bind-address of proxy and sync
//	log_format.go      messages on stderr as text or JSON
//	audit.go           keepwatch audit
//	judge.go           keepwatch judge
//	conform.go         keepwatch conform
//	faults.go          keepwatch faults
//	version.go         keepwatch version
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // certificate authorities, in an image that has none
	"k8s.io/klog/v2"
)

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	switch { // they handle signals themselves
	case name == kubectlName:
		runKubectl()
		return
	case name == etcdName && besideExactServer():
		runExactEtcd()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	code := runAs(ctx, name, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(code)
}

// program runs until it is done or ctx is. Its errors may have an exit code.
type program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// programs are what this binary is under other names.
var programs = map[string]program{apiServerName: runAPIServer, etcdName: runEtcd}

// The exit codes of errors. The code 0 means that the command ended on request.
const (
	codeError       = 1
	codeUsage       = 2
	codeInterrupted = 130
	codeNoReader    = 141 // shells show it for SIGPIPE
)

// exitError is an error with an exit code. Without a message nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// run runs keepwatch and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runAs(ctx, keepwatchName, args, stdout, stderr)
}

const (
	keepwatchName = "keepwatch"
	pluginName    = "kubectl-keepwatch" // kubectl runs it as the plugin keepwatch
)

// runAs runs the program of a name, which is keepwatch unless it is one of programs, and returns the exit code.
func runAs(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	log := newMessageLog(stderr)
	running, ended := context.WithCancel(ctx)
	defer ended()
	logLibraries(running, log)
	var err error
	help := name
	if run, ok := programs[name]; ok {
		err = run(running, args, stdout, stderr)
	} else {
		name = typedName(name)
		help, err = runKeepwatch(running, name, args, stdout, log)
	}
	ended() // the reason is the last line
	if err == nil {
		return 0
	}
	code := codeError
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	message := err.Error()
	if message == "" {
		return code
	}
	log.fail(name, help, plain(message), code)
	return code
}

// typedName returns what the user of keepwatch has typed to start a program of that name.
func typedName(name string) string {
	if name == pluginName {
		return "kubectl keepwatch"
	}
	return keepwatchName
}

// plain replaces what could control a terminal: servers word many errors.
func plain(message string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, message)
}

// runKeepwatch runs a subcommand, and returns its whole name. Its help calls the program by the name.
func runKeepwatch(ctx context.Context, name string, args []string, stdout io.Writer,
	log *messageLog) (command string, err error) {
	root := newRootCommand(log)
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(log.stderr)
	run, err := root.ExecuteContextC(ctx)
	return run.CommandPath(), err
}

// logLibraries logs the errors of the Kubernetes libraries until ctx is done.
func logLibraries(ctx context.Context, log *messageLog) {
	klog.SetSlogLogger(slog.New(libraryLog{log.handler(slog.LevelWarn), ctx}))
}

// libraryLog logs the errors of the Kubernetes libraries until ctx is done. It drops reports about
// clients' mistakes, and after ctx is done all reports, since the libraries report closing connections.
// klog logs their warnings at the level of information; they are dropped too.
type libraryLog struct {
	slog.Handler
	ctx context.Context
}

// Handle filters instead of Enabled, which klog doesn't call for errors.
func (l libraryLog) Handle(ctx context.Context, record slog.Record) error {
	if l.ctx.Err() != nil || isClientMistake(record.Message) {
		return nil
	}
	return l.Handler.Handle(ctx, record)
}

func (l libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryLog{l.Handler.WithAttrs(attrs), l.ctx}
}

func (l libraryLog) WithGroup(name string) slog.Handler {
	return libraryLog{l.Handler.WithGroup(name), l.ctx}
}

// newRootCommand returns the command with all subcommands.
func newRootCommand(log *messageLog) *cobra.Command {
	root := &cobra.Command{
		Use:           keepwatchName,
		Short:         "Follow Kubernetes without losing a change, take reads off its API server, and test controllers without it",
		Args:          usage(cobra.NoArgs),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.PersistentFlags().Var(log, "log-format",
		"messages and errors on stderr: text, or json with an object for each, which has time, level and msg")
	_ = root.RegisterFlagCompletionFunc("log-format",
		cobra.FixedCompletions([]string{textFormat, jsonFormat}, cobra.ShellCompDirectiveNoFileComp))
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		root.SetErr(log.writer())
		logLibraries(cmd.Context(), log)
	}
	current := currentVersion()
	root.Version = current.Version
	root.SetVersionTemplate(current.line())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if strings.Contains(err.Error(), `time: unknown unit "d"`) {
			err = fmt.Errorf("%w; hours are the largest unit: 72h is 3 days", err)
		}
		return &exitError{codeUsage, err}
	})
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Store changes, and look back:", []*cobra.Command{newWatchCommand(), newSyncCommand(), newHistoryCommand()}},
		{"Take reads off an API server:", []*cobra.Command{newProxyCommand(), newTopCommand()}},
		{"Be an API server, for tests:", []*cobra.Command{newAssetsCommand(), newServeCommand()}},
		{"Judge operators, servers, clients and caches:", []*cobra.Command{
			newJudgeCommand(), newConformCommand(), newFaultsCommand(), newAuditCommand(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
		}
		root.AddCommand(group.commands...)
	}
	root.AddCommand(newVersionCommand())
	return root
}

// usage returns check with exit code 2 for its errors. They name the subcommands that a mistyped one resembles.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		cmd.SuggestionsMinimumDistance = 2
		if similar := cmd.SuggestionsFor(strings.Join(args[:min(1, len(args))], "")); len(args) > 0 && len(similar) > 0 {
			err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(similar, ", or "))
		}
		return &exitError{codeUsage, err}
	}
}
