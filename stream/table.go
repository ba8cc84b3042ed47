package stream

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
)

// TableOptions configure a table as kubectl's flags do.
type TableOptions struct {
	Namespaces  bool // adds a column for the namespace
	Wide        bool // adds the columns of lower priority
	WatchEvents bool // adds a column for the type of the event
}

// tableSink writes rows as `kubectl get --watch` does.
type tableSink struct {
	out         *bufio.Writer
	tabs        flusher // aligns the columns, and writes to out
	printer     printers.ResourcePrinter
	watchEvents bool
	columns     []metav1.TableColumnDefinition // of the last object that had any
}

type flusher interface {
	io.Writer
	Flush() error
}

// Table returns a sink that writes a row for each event, under one header. An object that
// the server sent as a row ([Tabular]) shows the server's columns; another object shows
// name and age. A column is as wide as its widest cell so far. An object that was deleted
// within a gap shows its name only.
func Table(out io.Writer, options TableOptions) Sink {
	buffered := bufio.NewWriter(out)
	return &tableSink{
		out:         buffered,
		tabs:        printers.GetNewTabWriter(buffered),
		watchEvents: options.WatchEvents,
		printer: printers.NewTablePrinter(printers.PrintOptions{
			WithNamespace: options.Namespaces, Wide: options.Wide,
		}),
	}
}

func (s *tableSink) Write(m Message) error {
	e, ok := m.(Event)
	if !ok {
		return nil
	}
	object, err := s.row(e.Object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", e.Type, e.Object.Key(), err)
	}
	return s.printer.PrintObj(asWatchEvent(e.Type, object, s.watchEvents), s.tabs)
}

func (s *tableSink) Flush() error {
	if err := s.tabs.Flush(); err != nil {
		return err
	}
	return s.out.Flush()
}

// row returns the object that the printer prints as a row.
func (s *tableSink) row(o Object) (runtime.Object, error) {
	t, ok := o.(Tabular)
	if ok && len(t.Columns()) > 0 {
		s.columns = t.Columns()
		return s.cells(o, slices.Clone(t.Cells())), nil
	}
	if len(s.columns) > 0 {
		return s.cells(o, nameOnly(o, s.columns)), nil
	}
	partial := &metav1.PartialObjectMetadata{}
	return partial, json.Unmarshal(o.JSON(), partial)
}

// cells returns a table of one row.
func (s *tableSink) cells(o Object, cells []any) *metav1.Table {
	key := o.Key()
	return &metav1.Table{
		ColumnDefinitions: s.columns,
		Rows: []metav1.TableRow{{
			Cells: cells,
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			}},
		}},
	}
}

// nameOnly returns the cells of an object whose body is not known.
func nameOnly(o Object, columns []metav1.TableColumnDefinition) []any {
	cells := make([]any, len(columns))
	for i, c := range columns {
		cells[i] = "<unknown>"
		if c.Format == "name" || strings.EqualFold(c.Name, "name") {
			cells[i] = o.Key().Name
		}
	}
	return cells
}
