package past

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/past/difference"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// maxRows bounds the objects of a list on the page.
const maxRows = 200

// shownList is the list of a moment.
type shownList struct {
	Title, Warning string
	Namespaced     bool
	Columns        []string
	Rows           []shownRow
	LeftOut        int
	// State is the state of the one object that the query names, as YAML, and LinesLeftOut how many more lines it has.
	State        []diffLine
	LinesLeftOut int
}

// shownRow is an object of a list.
type shownRow struct {
	Namespace, Restore string
	Cells              []shownCell
}

// shownCell is a cell of a row, and the address of what it names, empty for none.
type shownCell struct{ Text, URL string }

// list reads the list of the query's moment, which may be one of all types.
func (r *pageRead) list(ofAll bool) (*shownList, error) {
	m, err := history.ParseMoment(r.query.At, r.server.now())
	if err != nil {
		return nil, badRequest(err)
	}
	group := schema.GroupResource{Group: r.typ.Group(), Resource: r.typ.Name()}
	found := &resolved{tables: r.server.tables}
	if found.stream, err = r.view.StreamOf(r.objects.Resource, r.objects.Namespace); err != nil {
		return nil, notFound(err.Error())
	}
	if ofAll {
		if m, err = r.view.In(r.q.Context(), m, found.stream); err != nil {
			return nil, momentError(err)
		}
	}
	if err := found.locate(r.q.Context(), r.view, m, r.server.config.AllowGaps); err != nil {
		return nil, momentError(err)
	}
	since, err := r.since(found.time, found.point, found.point)
	if err != nil {
		return nil, err
	}
	if err := r.allowed(since, found.header()); err != nil {
		return nil, err
	}
	t, err := r.view.TypeAt(r.q.Context(), r.objects.Resource, found.time)
	if err != nil || t == nil {
		return nil, err
	}
	found.resource, found.typ, found.format = group.WithVersion(t.Version), *t, r.server.tables.format(*t)
	if found.table, err = r.server.tables.source(r.q.Context(), r.view, found); err != nil {
		return nil, err
	}
	table, err := r.server.tables.table(found)
	if err != nil {
		return nil, err
	}
	states, count, err := r.view.AtMost(r.q.Context(), r.objects, found.point, maxRows)
	if err != nil {
		return nil, err
	}
	l := &shownList{
		Title: fmt.Sprintf("%d %s at revision %d, %s", count, r.objects.Resource, found.point.Revision,
			showTime(found.time)),
		Warning: found.warning, Namespaced: t.Namespaced, LeftOut: count - len(states),
	}
	for _, c := range table.Columns {
		if c.Priority == 0 {
			l.Columns = append(l.Columns, c.Name)
		}
	}
	for i := range states {
		row, err := r.row(&states[i], found, table)
		if err != nil {
			return nil, err
		}
		l.Rows = append(l.Rows, row)
	}
	if r.objects.Name == "" || len(states) != 1 {
		return l, nil
	}
	text, err := difference.Shown{Status: true}.YAML(&states[0])
	l.State, l.LinesLeftOut = linesOf(text, func(string) string { return "" })
	return l, err
}

// row returns the row of an object.
func (r *pageRead) row(s *sink.State, found *resolved, table *readpath.Table) (shownRow, error) {
	one := r.query.withoutChange()
	one.Namespace, one.Name = s.Key.Namespace, s.Key.Name
	row := shownRow{Namespace: s.Key.Namespace, Restore: restoreAt(r, s.Key, found)}
	named, err := r.named(s)
	if err != nil {
		return row, err
	}
	o, _, err := found.format.Decode(s.Object, nil, nil)
	if err != nil {
		return row, fmt.Errorf("%s at revision %d: %w", s.Key, s.From.Revision, err)
	}
	cells, err := table.Row(o)
	if err != nil {
		return row, fmt.Errorf("%s at revision %d: %w", s.Key, s.From.Revision, err)
	}
	for i, c := range table.Columns {
		if c.Priority > 0 || i >= len(cells.Cells) {
			continue
		}
		cell := cells.Cells[i]
		if since, ok := cell.(readpath.Since); ok {
			cell = since.At(found.time)
		}
		if cell == nil {
			cell = ""
		}
		shown := shownCell{Text: strings.TrimSpace(fmt.Sprint(cell))}
		switch {
		case len(row.Cells) == 0:
			shown.URL = one.URL()
		case c.Name == "Object" && len(named) > 0: // of an Event
			shown.URL = named[0].URL
		}
		row.Cells = append(row.Cells, shown)
	}
	return row, nil
}

// restoreAt returns the command that restores an object as it was at a moment, empty if the command would refuse it.
func restoreAt(r *pageRead, key keepwatch.Key, found *resolved) string {
	if found.inGap || found.point.Epoch != found.stream.Progress.Epoch {
		return ""
	}
	return fmt.Sprintf("keepwatch history restore %s --at revision/%d%s", r.arguments(key), found.point.Revision,
		fromDatabase)
}
