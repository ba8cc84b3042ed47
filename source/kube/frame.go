package kube

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// frames reads the events of a watch.
type frames struct {
	*exchange
	source  *Source
	framer  framer
	builder builder
	// newest is the greatest revision of the stream, initially its start.
	newest keepwatch.Revision
}

// event is a change or a bookmark. It is validated alone: only a target, which has the
// keys, can decide whether a change is repeated.
type event struct {
	change   keepwatch.Change // without an Object: a bookmark
	size     int              // of the object's text as received
	revision keepwatch.Revision
	endsList bool // the bookmark that ends a streaming list
}

func (e event) bookmark() bool { return e.change.Object == nil }

func (s *Source) frames(x *exchange, from keepwatch.Revision) *frames {
	return s.framesBuiltBy(s.builder, x, from)
}

func (s *Source) framesBuiltBy(b builder, x *exchange, from keepwatch.Revision) *frames {
	f := &frames{exchange: x, source: s, builder: b, newest: from}
	if x.encoding == Protobuf {
		f.framer = newProtobufFrames(x, f.builder)
	} else {
		f.framer = jsonFrames{x.splitter(f.builder)}
	}
	return f
}

// framer splits the response to a watch into frames.
type framer interface {
	// frame reads the next {"type", "object"} of the stream. io.EOF between two frames is
	// the end of the stream.
	frame() (kind string, raw rawObject, err error)
}

// next reads one event. An event that it can't read is a failure: to continue after it
// would confirm its revision without its change.
func (f *frames) next() (event, *keepwatch.Failure) {
	kind, raw, err := f.framer.frame()
	switch {
	case err == io.EOF && f.body.err == io.EOF && f.cancelCause() == nil:
		return event{}, keepwatch.Failed(keepwatch.Ended, "%s: the server ended the stream", f.op)
	case err != nil:
		return event{}, f.readFailure(err)
	case kind == "ERROR":
		return event{}, f.errorEvent(raw)
	}
	e, err := f.event(kind, raw)
	if err != nil {
		return event{}, f.contentFailure(err)
	}
	if e.bookmark() {
		f.source.bookmarked.Store(true)
	}
	f.newest = max(f.newest, e.revision)
	return e, nil
}

func (f *frames) event(kind string, raw rawObject) (event, error) {
	raw, r, err := f.unwrap(raw)
	if err != nil {
		return event{}, err
	}
	switch kind {
	case "ADDED":
		return f.change(keepwatch.Added, raw, r)
	case "MODIFIED":
		return f.change(keepwatch.Modified, raw, r)
	case "DELETED":
		return f.change(keepwatch.Deleted, raw, r)
	case "BOOKMARK":
		return f.bookmark(raw)
	}
	return event{}, violation{fmt.Errorf("unknown event type %q", kind)}
}

func (f *frames) change(kind keepwatch.ChangeType, raw rawObject, r *row) (event, error) {
	o, err := f.builder.build(raw, r)
	if err != nil {
		return event{}, err
	}
	change := keepwatch.Change{Type: kind, Revision: o.Revision(), Object: o}
	return event{change: change, size: len(raw.text), revision: change.Revision}, nil
}

// bookmark reads a bookmark. A bookmark below newest is a violation: it contradicts the
// events that were sent.
func (f *frames) bookmark(raw rawObject) (event, error) {
	revision, err := keepwatch.ParseRevision(raw.revision)
	if err != nil {
		return event{}, violation{fmt.Errorf("a bookmark's %w", err)}
	}
	if revision < f.newest {
		return event{}, violation{fmt.Errorf("a bookmark at revision %v, below %v", revision, f.newest)}
	}
	ends, err := raw.endsList()
	if err != nil {
		return event{}, decodeError{err}
	}
	return event{revision: revision, endsList: ends}, nil
}

// unwrap returns the object in the table of one row that an event contains if tables were
// requested. It returns any other object, and a table without rows, unchanged.
func (f *frames) unwrap(raw rawObject) (rawObject, *row, error) {
	if raw.kind != "Table" || !strings.HasPrefix(raw.apiVersion, metav1.GroupName+"/") {
		return raw, nil, nil
	}
	var r *row
	rows := 0
	table := jsonPage{splitter: newSplitter(bytes.NewReader(raw.text)), partialPage: &partialPage{}}
	table.visit = func(innerObject rawObject, innerRow *row) error {
		raw, r = innerObject, innerRow
		rows++
		return nil
	}
	if err := table.read(); err != nil {
		return rawObject{}, nil, violation{fmt.Errorf("a table: %w", err)}
	}
	if rows > 1 {
		return rawObject{}, nil, violation{fmt.Errorf("an event with %d objects", rows)}
	}
	f.source.storeColumns(table.columns)
	if r != nil {
		r.columns = f.source.lastColumns()
	}
	return raw, r, nil
}

// errorEvent returns the failure of an ERROR event.
func (f *frames) errorEvent(raw rawObject) *keepwatch.Failure {
	s, ok := raw.status()
	if !ok {
		s = &metav1.Status{Message: "an error without a status"}
	}
	return f.statusFailure(s, 0)
}
