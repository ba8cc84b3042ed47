// Keepwatch serves the Kubernetes API and writes the changes of a resource as a stream.
// `keepwatch --help` describes its subcommands. Under the name kube-apiserver, etcd or kubectl it is that program;
// `keepwatch assets` makes the names.
//
// Exit codes: 0 ended on request, 1 error, 2 wrong usage, 130 interrupted, 141 nobody reads stdout; audit has diff's.
// Data goes to stdout, messages to stderr.
//
// The subcommands are packages below internal, those of one kind in one: watch and sync, proxy and top, the judges. The
// tests here run the program. Some types of the packages are exported for them: what a command writes as JSON.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // certificate authorities, in an image that has none

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/assets"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/follow"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/judges"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/proxy"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serve"
	// kubectl's texts, which all commands would load
	_ "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/untranslated"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/version"
)

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	switch { // they handle signals themselves
	case name == assets.Kubectl:
		assets.RunKubectl()
		return
	case name == assets.Etcd && assets.BesideExactServer():
		assets.RunExactEtcd()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), requests()...)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	code := runAs(ctx, name, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(code)
}

// requests are the signals that ask for an end. A terminal that is closed sends SIGHUP, which nohup ignores: a process
// that SIGHUP kills leaves its temporary data, and what it has created in a cluster.
func requests() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// program runs until it is done or ctx is. Its errors may have an exit code.
type program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// programs are what this binary is under other names.
var programs = map[string]program{assets.APIServer: assets.RunAPIServer, assets.Etcd: assets.RunEtcd}

// run runs keepwatch and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runAs(ctx, messages.Program, args, stdout, stderr)
}

// pluginName is the name by which kubectl runs this program as its plugin.
const pluginName = "kubectl-keepwatch"

// runAs runs the program of a name, which is keepwatch unless it is one of programs, and returns the exit code.
func runAs(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	log := messages.New(stderr)
	running, ended := context.WithCancel(ctx)
	defer ended()
	messages.LogLibraries(running, log)
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
	code := exit.CodeError
	if exit, ok := errors.AsType[*exit.Error](err); ok {
		code = exit.Code
	}
	message := err.Error()
	if message == "" {
		return code
	}
	log.Fail(name, help, messages.Indented(message), code)
	return code
}

// typedName returns what the user of keepwatch has typed to start a program of that name.
func typedName(name string) string {
	if name == pluginName {
		return "kubectl keepwatch"
	}
	return messages.Program
}

// runKeepwatch runs a subcommand, and returns its whole name. Its help calls the program by the name.
func runKeepwatch(ctx context.Context, name string, args []string, stdout io.Writer,
	log *messages.Log) (command string, err error) {
	root := newRootCommand(log)
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(log.Writer())
	refuseUnknownTopics(root)
	var unwritten error // of the help
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text strings.Builder
		out := cmd.OutOrStdout()
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, unwritten = io.WriteString(out, typed(text.String(), name, root))
	})
	flagError := root.FlagErrorFunc()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		for i, arg := range args { // --log-format may stand behind the wrong flag
			if arg == "--" {
				break
			}
			if arg == "--log-format=json" || arg == "json" && i > 0 && args[i-1] == "--log-format" {
				_ = log.Set(messages.JSON)
			}
		}
		return flagError(cmd, err)
	})
	run, err := root.ExecuteContextC(ctx)
	return run.CommandPath(), cmp.Or(err, exit.WriteError(unwritten))
}

// refuseUnknownTopics makes the commands help and completion refuse what they do not know, in place of the help of
// another command.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			help := cmd.Run
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if of, rest, err := root.Find(args); err != nil || of.HasSubCommands() && len(rest) > 0 {
					return exit.Usage(fmt.Errorf("there is no command %q", strings.Join(args, " ")))
				}
				help(cmd, args)
				return nil
			}
		case "completion":
			cmd.Args = exit.Args(cobra.NoArgs)
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// typed returns a help whose commands begin with the name that the user has typed. "A keepwatch proxy" is no command.
func typed(help, name string, root *cobra.Command) string {
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	command := regexp.MustCompile(`(\ba |kubectl )?\bkeepwatch (` + strings.Join(names, "|") + `)\b`)
	return command.ReplaceAllStringFunc(help, func(found string) string {
		if own, ok := strings.CutPrefix(found, messages.Program); ok {
			return name + own
		}
		return found
	})
}

// newRootCommand returns the command with all subcommands.
func newRootCommand(log *messages.Log) *cobra.Command {
	root := &cobra.Command{
		Use:           messages.Program,
		Short:         "Follow Kubernetes without losing a change, take reads off its API server, and test controllers without it",
		Args:          exit.Args(cobra.NoArgs),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.PersistentFlags().Var(log, "log-format",
		"messages and errors on stderr: text, or json with an object for each, which has time, level and msg")
	_ = root.RegisterFlagCompletionFunc("log-format",
		cobra.FixedCompletions([]string{messages.Text, messages.JSON}, cobra.ShellCompDirectiveNoFileComp))
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		root.SetErr(log.Writer())
		messages.LogLibraries(cmd.Context(), log)
	}
	current := version.Current()
	root.Version = current.Version
	root.SetVersionTemplate(current.Line())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if strings.Contains(err.Error(), `time: unknown unit "d"`) {
			err = fmt.Errorf("%w; hours are the largest unit: 72h is 3 days", err)
		}
		return exit.Usage(err)
	})
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Store changes, and look back:", []*cobra.Command{follow.NewWatchCommand(), follow.NewSyncCommand(),
			history.NewCommand()}},
		{"Take reads off an API server:", []*cobra.Command{proxy.NewCommand(), proxy.NewTopCommand()}},
		{"Be an API server, for tests:", []*cobra.Command{assets.NewCommand(), serve.NewCommand()}},
		{"Judge operators, servers, clients and caches:", []*cobra.Command{
			judges.NewJudgeCommand(), judges.NewConformCommand(), judges.NewFaultsCommand(), judges.NewAuditCommand(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
		}
		root.AddCommand(group.commands...)
	}
	root.AddCommand(version.NewCommand())
	return root
}
