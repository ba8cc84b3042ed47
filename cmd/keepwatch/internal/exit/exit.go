// Package exit has the errors with which commands end, and their exit codes.
package exit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes of errors. The code 0 means that the command ended on request.
const (
	CodeError       = 1
	CodeUsage       = 2
	CodeInterrupted = 130
	CodeNoReader    = 141 // shells show it for SIGPIPE
)

// Error is an error with an exit code. Without a message nothing is printed.
type Error struct {
	Code int
	err  error
}

func (e *Error) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *Error) Unwrap() error { return e.err }

// Usage returns an error of the command line, or of a file that it names.
func Usage(err error) error { return &Error{CodeUsage, err} }

// Args returns check with exit code 2 for its errors. They name the subcommands that a mistyped one resembles.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		cmd.SuggestionsMinimumDistance = 2
		if similar := cmd.SuggestionsFor(strings.Join(args[:min(1, len(args))], "")); len(args) > 0 && len(similar) > 0 {
			err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(similar, ", or "))
		}
		return Usage(err)
	}
}

// NotEmpty makes flags refuse an empty value, which an unset variable of a script has. The user of such a flag relies
// on something that the command does not do without it.
func NotEmpty(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flag := flags.Lookup(name)
		flag.Value = notEmpty{flag.Value}
		if flag.DefValue == "[]" { // --help would show it, since the type of the value is another one now
			flag.DefValue = ""
		}
	}
}

// notEmpty is a flag's value that cannot be set to nothing.
type notEmpty struct{ pflag.Value }

func (n notEmpty) Set(text string) error {
	if text == "" {
		return errors.New("it is empty: give a value, or leave out the flag")
	}
	return n.Value.Set(text)
}

// Interrupted reports whether SIGINT ended ctx. The text of the cause of
// signal.NotifyContext is the only way to know.
func Interrupted(ctx context.Context) bool {
	return strings.HasPrefix(context.Cause(ctx).Error(), os.Interrupt.String()+" ")
}

// WriteError adds the operation to an error of a write. It hides the cause: a full disk of the output ends a stream,
// and one of the state is waited for.
func WriteError(err error) error {
	if err != nil {
		return fmt.Errorf("write the output: %v", err)
	}
	return nil
}
