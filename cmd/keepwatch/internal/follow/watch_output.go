package follow

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
)

// outputFlags are the flags of the output: kubectl's, and ours.
type outputFlags struct {
	print       *genericclioptions.PrintFlags
	watchEvents bool
}

func newOutputFlags() outputFlags {
	return outputFlags{print: genericclioptions.NewPrintFlags("").WithDefaultOutput("ndjson")}
}

// outputFormats returns the values of -o.
func (f *outputFlags) outputFormats() []string {
	formats := []string{"ndjson", "table", "wide"}
	for _, name := range f.print.AllowedFormats() {
		if !slices.Contains(formats, name) {
			formats = append(formats, name)
		}
	}
	return formats
}

func (f *outputFlags) addTo(cmd *cobra.Command) {
	f.print.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Output format. One of: (" + strings.Join(f.outputFormats(), ", ") + ")."
	cmd.Flags().BoolVar(&f.watchEvents, "output-watch-events", false,
		"print watch events around objects, and a column EVENT in tables")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.outputFormats(),
		cobra.ShellCompDirectiveNoFileComp))
}

// outputFormat is a value of -o.
type outputFormat struct {
	// representation is requested from the server.
	representation kube.Representation
	// data reports whether SYNCED and GAP are part of the output.
	data bool
	// lines reports whether the output can be read line by line.
	lines bool
	sink  func(io.Writer, *cluster.Target) stream.Sink
}

// complete returns the format of the flags.
func (f *outputFlags) complete(cmd *cobra.Command) (outputFormat, error) {
	format := *f.print.OutputFormat
	template := f.print.TemplatePrinterFlags.TemplateArgument
	if *template != "" && !cmd.Flags().Changed("output") {
		format = "go-template"
	}
	switch format {
	case "ndjson":
		return outputFormat{representation: kube.WholeObjects, data: true, lines: true, sink: func(out io.Writer,
			t *cluster.Target) stream.Sink {
			return newLines(out, t)
		}}, nil
	case "table", "wide":
		return outputFormat{representation: kube.TableRows, lines: true, sink: func(out io.Writer,
			t *cluster.Target) stream.Sink {
			return stream.Table(out, stream.TableOptions{
				Namespaces: t.Namespaced && t.Namespace == "", Wide: format == "wide", WatchEvents: f.watchEvents,
			})
		}}, nil
	case "name":
		return outputFormat{representation: kube.MetadataOnly, lines: true, sink: func(out io.Writer,
			t *cluster.Target) stream.Sink {
			return stream.Names(out, t.Kind.GroupKind())
		}}, nil
	}
	printer, err := f.print.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return outputFormat{}, fmt.Errorf("the output format %q is unknown: give one of %s", format,
			strings.Join(f.outputFormats(), ", "))
	} else if err != nil {
		return outputFormat{}, err
	}
	return outputFormat{representation: kube.WholeObjects, sink: func(out io.Writer, _ *cluster.Target) stream.Sink {
		return stream.Printer(out, printer, f.watchEvents)
	}}, nil
}

// checkOpen returns an error if the output was closed (`>&-`). The Go runtime replaces a closed output by
// /dev/null, opened for reading and writing, and all events would be lost. `>/dev/null` is opened for
// writing only.
func checkOpen(out io.Writer) error {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return exit.WriteError(err)
	}
	if null, err := os.Stat(os.DevNull); err != nil || !os.SameFile(info, null) {
		return nil
	}
	if _, err := file.Read(make([]byte, 1)); err != io.EOF {
		return nil
	}
	return errors.New("stdout is closed: all events would be lost; redirect it to /dev/null to discard them")
}

// completeLine ends the last line of a file that the output is appended to, if the previous run was
// killed while it wrote the line.
func completeLine(out io.Writer) error {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	// The file is open for writing only: open it again for reading.
	in, err := os.Open(fmt.Sprintf("/dev/fd/%d", file.Fd()))
	if err != nil {
		return nil
	}
	defer in.Close()
	last := make([]byte, 1)
	if _, err := in.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return nil
	}
	_, err = file.WriteString("\n")
	return exit.WriteError(err)
}
