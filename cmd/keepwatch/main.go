// Keepwatch keeps live copies of Kubernetes state. Its subcommands are described by
// `keepwatch --help`.
//
// Exit codes: 0 asked to end, 1 error, 2 usage, 130 interrupted. Data goes to stdout, messages for
// people to stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(code)
}

// The exit codes besides 0, which is for an end that was asked for.
const (
	codeError       = 1
	codeUsage       = 2
	codeInterrupted = 130
)

// exitError ends the process with a code of its own. An error without a message prints nothing.
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

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	errorsOnly := slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	klog.SetSlogLogger(slog.New(libraryLog{errorsOnly, ctx}))
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := codeError
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(stderr, "keepwatch: "+message)
	}
	if code == codeUsage {
		fmt.Fprintln(stderr, "See 'keepwatch --help'.")
	}
	return code
}

// libraryLog is the errors that the Kubernetes libraries log (klog passes their warnings on as mere
// information), but for clients' mistakes, until ctx ends: connections that close at the end are errors
// to them.
type libraryLog struct {
	slog.Handler
	ctx context.Context
}

// Handle decides, and not Enabled, which klog doesn't ask about errors.
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

// newRootCommand is the command without a subcommand.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "keepwatch",
		Short:         "Keep live copies of Kubernetes state and never lose the place",
		Args:          usage(cobra.NoArgs),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{codeUsage, err} })
	root.AddCommand(newServeCommand(), newWatchCommand(), newVersionCommand())
	return root
}

// usage makes wrong arguments an error of usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &exitError{codeUsage, err}
		}
		return nil
	}
}
