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

// TableOptions shape a table as kubectl's flags do.
type TableOptions struct {
	Namespaces  bool // a column for them
	Wide        bool // columns of lower priority too
	WatchEvents bool // a column for the type of the event
}

// table writes rows as `kubectl get --watch` does.
type table struct {
	out     *bufio.Writer
	tabs    flusher // aligns what goes to out
	printer printers.ResourcePrinter
	events  bool
	columns []metav1.TableColumnDefinition // last seen
}

type flusher interface {
	io.Writer
	Flush() error
}

// Table writes a row an event, under one header. What the server gave as rows
// ([Tabular]) shows its columns; what it did not shows name and age. Columns are
// as wide as the widest cell so far. Of an object that was deleted while nobody
// watched, only the name is known.
func Table(out io.Writer, options TableOptions) Sink {
	buffered := bufio.NewWriter(out)
	return &table{
		out:    buffered,
		tabs:   printers.GetNewTabWriter(buffered),
		events: options.WatchEvents,
		printer: printers.NewTablePrinter(printers.PrintOptions{
			WithNamespace: options.Namespaces, Wide: options.Wide,
		}),
	}
}

func (s *table) Write(m Message) error {
	e, ok := m.(Event)
	if !ok {
		return nil
	}
	object, err := s.row(e.Object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", e.Type, e.Object.Key(), err)
	}
	return s.printer.PrintObj(watched(e.Type, object, s.events), s.tabs)
}

func (s *table) Flush() error {
	if err := s.tabs.Flush(); err != nil {
		return err
	}
	return s.out.Flush()
}

// row is what the printer makes a row of.
func (s *table) row(o Object) (runtime.Object, error) {
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

// cells is a table of one row.
func (s *table) cells(o Object, cells []any) *metav1.Table {
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

// nameOnly are the cells of an object of which no more is known.
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
