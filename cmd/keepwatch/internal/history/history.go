package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/server/past/difference"
	"github.com/keepwatch/keepwatch/server/past/fork"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const help = `Look back in a database that keepwatch sync has written, or still writes: what has changed, when,
and by which tool.

A moment is a time (2026-11-28T10:42:00Z; 10:42 is the last one, in the local time zone; -15m is
before now), a revision (revision/4711), or now, the newest state that is stored. A moment of which
the database does not have the state is refused, with the nearest known ones: before the first list,
in a declared gap, after the last transaction.

The managers of fields are those of metadata.managedFields: the names that tools give themselves,
and no people. A deletion has none, and neither has a field that was removed: who did it is in the
API server's audit log.

The database is opened for reading only.`

// NewCommand returns `keepwatch history`.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Look back: what has changed, when, and by which tool",
		Long:  help,
		Args:  exit.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLogCommand(), newDiffCommand(), newBlameCommand(), newEventsCommand(),
		newRestoreCommand(), newContextCommand())
	return cmd
}

// flags are the flags of all commands that look back.
type flags struct {
	from          string
	output        string
	config        *genericclioptions.ConfigFlags
	allNamespaces bool
	status        bool
	managedFields bool
}

func newFlags() *flags {
	defaults := genericclioptions.NewConfigFlags(true)
	return &flags{config: &genericclioptions.ConfigFlags{ // for the namespace
		KubeConfig: defaults.KubeConfig, Context: defaults.Context, Namespace: defaults.Namespace,
	}}
}

// Addresses are the forms of --from.
const Addresses = "sqlite:FILE or postgres://USER@HOST/DATABASE"

func (o *flags) addTo(flags *pflag.FlagSet, outputs string) {
	o.addDatabaseTo(flags, outputs)
	flags.BoolVar(&o.status, "status", false, "show the fields of status, too")
	flags.BoolVar(&o.managedFields, "managed-fields", false,
		"show metadata.managedFields, too, where whole objects are compared")
}

// addDatabaseTo adds the flags of commands that compare nothing.
func (o *flags) addDatabaseTo(flags *pflag.FlagSet, outputs string) {
	o.config.AddFlags(flags)
	flags.StringVar(&o.from, "from", "", "the database that keepwatch sync has written: "+Addresses)
	flags.StringVarP(&o.output, "output", "o", "text", "the output: "+outputs)
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false,
		"all namespaces, regardless of the context and --namespace")
}

// check returns an error for another output than those allowed.
func (o *flags) check(outputs ...string) error {
	if !slices.Contains(outputs, o.output) {
		return exit.Usage(fmt.Errorf("--output must be %s, not %q", strings.Join(outputs, ", "), o.output))
	}
	return nil
}

// view opens the database, and calls read with one state of it.
func (o *flags) view(ctx context.Context, read func(*history.View) error) error {
	database, err := Open(ctx, o.from)
	if err != nil {
		return err
	}
	err = history.New(database, history.Options{Known: fork.KnownType}).View(ctx, read)
	return errors.Join(err, database.Close())
}

// Open opens the database of --from or --history.
func Open(ctx context.Context, address string) (history.Database, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	switch {
	case address == "":
		return nil, exit.Usage(errors.New("give the database with --from: " + Addresses))
	case scheme == "sqlite" && rest != "" && !strings.HasPrefix(rest, "//"):
		return opened(sqlite.OpenHistory(ctx, rest))
	case scheme == "postgres" || scheme == "postgresql":
		return opened(postgres.OpenHistory(ctx, address))
	}
	// The text may contain a password.
	return nil, exit.Usage(errors.New("the database of a history must be " + Addresses))
}

// Name returns the address of a database without what may be a password: the user and the parameters of a URL,
// whose host may be missing, or several.
func Name(address string) string {
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL {
		return address
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
}

// opened returns a database, or why it could not be opened, in one line.
func opened[D history.Database](database D, err error) (history.Database, error) {
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	return database, nil
}

// namespace returns the namespace of the command line, empty for all.
func (o *flags) namespace() (string, error) {
	if o.allNamespaces {
		return "", nil
	}
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// objects returns the objects that the arguments name: TYPE, TYPE NAME or TYPE/NAME.
func (o *flags) objects(ctx context.Context, v *history.View,
	args []string) (of history.Objects, t *history.Type, err error) {
	arg, err := cluster.ParseTypeAndName(args)
	if err != nil {
		return of, nil, exit.Usage(err)
	}
	if t, err = v.Find(ctx, arg.Kind); err != nil {
		return of, nil, err
	}
	of = history.Objects{Resource: t.Resource, Name: arg.Name}
	if t.Namespaced {
		if of.Namespace, err = o.namespace(); err != nil {
			return of, nil, err
		}
		if of.Name != "" && of.Namespace == "" {
			return of, nil,
				exit.Usage(errors.New("a name can't be combined with all namespaces: remove the name or -A"))
		}
	}
	return of, t, nil
}

// selected returns the objects of the arguments and their streams, or without arguments the streams of all types of the
// namespace, each with its [objectsOf]. Those of one type in all namespaces are several if each is of one namespace.
func (o *flags) selected(ctx context.Context, v *history.View, args []string) (of history.Objects,
	streams []sink.Status, err error) {
	if len(args) > 0 {
		if of, _, err = o.objects(ctx, v, args); err != nil {
			return of, nil, err
		}
		stream, err := v.StreamOf(of.Resource, of.Namespace)
		if err == nil {
			return of, []sink.Status{stream}, nil
		}
		if o.allNamespaces {
			others := func(s sink.Status) bool { return s.ID.Resource != of.Resource }
			streams = slices.DeleteFunc(slices.Clone(v.Streams()), others)
		}
		if len(streams) == 0 {
			return of, nil, err
		}
		return of, history.ByLine(streams), nil
	}
	if of.Namespace, err = o.namespace(); err != nil {
		return of, nil, err
	}
	types, err := v.Types(ctx)
	if err != nil {
		return of, nil, err
	}
	for _, s := range v.Streams() {
		i := slices.IndexFunc(types, func(t history.Type) bool { return t.Resource == s.ID.Resource })
		if i >= 0 && (of.Namespace == "" || types[i].Namespaced && (s.ID.Namespace == "" || s.ID.Namespace == of.Namespace)) {
			streams = append(streams, s)
		}
	}
	if len(streams) == 0 {
		return of, nil, fmt.Errorf("the history has no types of namespace %q", of.Namespace)
	}
	return of, history.ByLine(streams), nil
}

// objectsOf returns those of the selected objects that a stream has. All namespaces are that of a stream of one.
func objectsOf(of history.Objects, s sink.Status) history.Objects {
	of.Resource, of.Namespace = s.ID.Resource, cmp.Or(of.Namespace, s.ID.Namespace)
	return of
}

// Moment parses a moment of a flag.
func Moment(flag, text string) (history.Moment, error) {
	m, err := history.ParseMoment(text, time.Now())
	if err != nil {
		return m, exit.Usage(fmt.Errorf("--%s: %w", flag, err))
	}
	return m, nil
}

// writeRow writes a line of a table. What the cells have of objects can neither end the line nor control a terminal.
func writeRow(rows io.Writer, cells ...any) {
	var line []string
	for _, cell := range cells {
		line = append(line, printable(fmt.Sprint(cell)))
	}
	fmt.Fprintln(rows, strings.Join(line, "\t")) // the flush has the error
}

// printable returns a text in one line, with ^[ for an escape, as kubectl writes it, and so on.
func printable(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t':
			out.WriteByte(' ')
		case r < ' ' || r == 0x7f:
			out.WriteString("^" + string(r^0x40))
		case unicode.IsControl(r):
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// writeData writes a value as JSON or YAML.
func writeData(out io.Writer, output string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if output == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	if _, err := out.Write(text); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// dataList writes a list as JSON or YAML, element by element, as writeData writes an object that has nothing else.
type dataList struct {
	out          io.Writer
	output, name string
	count        int
}

func (l *dataList) isEmpty() bool { return l.count == 0 }

func (l *dataList) add(element any) error {
	text, err := json.MarshalIndent(element, "    ", "  ")
	if err != nil {
		return err
	}
	before := ",\n    "
	if l.count == 0 {
		before = fmt.Sprintf("{\n  %q: [\n    ", l.name)
	}
	if l.output == "yaml" {
		if text, err = yaml.JSONToYAML(slices.Concat([]byte("["), text, []byte("]"))); err != nil {
			return err
		}
		if before = ""; l.count == 0 {
			before = l.name + ":\n"
		}
	}
	l.count++
	return l.write(before + string(text))
}

func (l *dataList) end() error {
	switch {
	case l.output == "yaml" && l.count == 0:
		return l.write(l.name + ": []\n")
	case l.output == "yaml":
		return nil
	case l.count == 0:
		return l.write(fmt.Sprintf("{\n  %q: []\n}\n", l.name))
	}
	return l.write("\n  ]\n}\n")
}

func (l *dataList) write(text string) error {
	if _, err := io.WriteString(l.out, text); err != nil {
		return exit.WriteError(err)
	}
	return nil
}

// objectName returns the name of an object as kubectl writes it, with its namespace.
func objectName(s *sink.State) string { return difference.Name(s) }
