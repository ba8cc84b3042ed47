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

// printed writes changed objects through a printer of kubectl's.
type printed struct {
	out     *bufio.Writer
	printer printers.ResourcePrinter
	events  bool
}

// Printed writes the object of each event through printer (YAML, JSON, JSONPath
// or a Go template), or with watchEvents a watch event around it.
func Printed(out io.Writer, printer printers.ResourcePrinter, watchEvents bool) Sink {
	return &printed{out: bufio.NewWriter(out), printer: printer, events: watchEvents}
}

func (s *printed) Write(m Message) error {
	e, ok := m.(Event)
	if !ok {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(e.Object.JSON()); err != nil {
		return fmt.Errorf("%s %s: %w", e.Type, e.Object.Key(), err)
	}
	return s.printer.PrintObj(watched(e.Type, object, s.events), s.out)
}

func (s *printed) Flush() error { return s.out.Flush() }

// watched puts a watch event around an object, if it is asked for.
func watched(kind keepwatch.ChangeType, o runtime.Object, events bool) runtime.Object {
	if !events {
		return o
	}
	return &metav1.WatchEvent{Type: kind.String(), Object: runtime.RawExtension{Object: o}}
}
