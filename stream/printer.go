package stream

import (
	"bufio"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/keepwatch/keepwatch"
)

// printerSink writes changed objects through a printer of kubectl.
type printerSink struct {
	out         *bufio.Writer
	printer     printers.ResourcePrinter
	watchEvents bool
}

// Printer returns a sink that writes the object of each event through printer (YAML,
// JSON, JSONPath or a Go template), or with watchEvents the watch event.
func Printer(out io.Writer, printer printers.ResourcePrinter, watchEvents bool) Sink {
	return &printerSink{out: bufio.NewWriter(out), printer: printer, watchEvents: watchEvents}
}

func (s *printerSink) Write(m Message) error {
	e, ok := m.(Event)
	if !ok {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(e.Object.JSON()); err != nil {
		return fmt.Errorf("%s %s: %w", e.Type, e.Object.Key(), err)
	}
	return s.printer.PrintObj(asWatchEvent(e.Type, object, s.watchEvents), s.out)
}

func (s *printerSink) Flush() error { return s.out.Flush() }

// asWatchEvent returns the object, or with events a watch event of it.
func asWatchEvent(kind keepwatch.ChangeType, o runtime.Object, events bool) runtime.Object {
	if !events {
		return o
	}
	return &metav1.WatchEvent{Type: kind.String(), Object: runtime.RawExtension{Object: o}}
}
