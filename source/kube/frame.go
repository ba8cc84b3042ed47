package kube

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// frames reads the events of a watch, one after the other.
type frames struct {
	*exchange
	source *Source
	framer framer
	maker  maker
	// seen is the greatest revision that the stream has shown, or began from.
	seen keepwatch.Revision
}

// event is a change or a bookmark. It is judged by itself; whether a change is
// news only a target can tell, who knows the keys.
type event struct {
	change   keepwatch.Change // without an Object: a bookmark
	size     int              // of the object, as it came
	revision keepwatch.Revision
	ends     bool // the bookmark that ends a streaming list
}

func (e event) bookmark() bool { return e.change.Object == nil }

func (s *Source) frames(x *exchange, from keepwatch.Revision) *frames {
	f := &frames{exchange: x, source: s, maker: s.maker, seen: from}
	if x.encoding == Protobuf {
		f.framer = newProtobufFrames(x, f.maker)
	} else {
		f.framer = jsonFrames{x.cutter(f.maker)}
	}
	return f
}

// framer cuts the answer to a watch into frames.
type framer interface {
	// frame cuts the next {"type", "object"} out of the stream; io.EOF between two
	// frames is the stream's end.
	frame() (kind string, d draft, err error)
}

// next reads one event. What it can't understand is a failure: to go on behind
// it would be to claim its revision.
func (f *frames) next() (event, *keepwatch.Failure) {
	kind, d, err := f.framer.frame()
	switch {
	case err == io.EOF && f.body.err == io.EOF && f.given() == nil:
		return event{}, keepwatch.Failed(keepwatch.Ended, "%s: the server ended the stream", f.op)
	case err != nil:
		return event{}, f.unread(err)
	case kind == "ERROR":
		return event{}, f.fault(d)
	}
	e, err := f.event(kind, d)
	if err != nil {
		return event{}, f.unfit(err)
	}
	f.seen = max(f.seen, e.revision)
	return e, nil
}

func (f *frames) event(kind string, d draft) (event, error) {
	d, r, err := f.unwrap(d)
	if err != nil {
		return event{}, err
	}
	switch kind {
	case "ADDED":
		return f.change(keepwatch.Added, d, r)
	case "MODIFIED":
		return f.change(keepwatch.Modified, d, r)
	case "DELETED":
		return f.change(keepwatch.Deleted, d, r)
	case "BOOKMARK":
		return f.progress(d)
	}
	return event{}, violation{fmt.Errorf("unknown event type %q", kind)}
}

func (f *frames) change(kind keepwatch.ChangeType, d draft, r *row) (event, error) {
	o, err := f.maker.object(d, r)
	if err != nil {
		return event{}, err
	}
	change := keepwatch.Change{Type: kind, Revision: o.Revision(), Object: o}
	return event{change: change, size: len(d.text), revision: change.Revision}, nil
}

// progress reads a bookmark. One below what was seen would promise that what we
// have seen does not exist yet.
func (f *frames) progress(d draft) (event, error) {
	revision, err := keepwatch.ParseRevision(d.revision)
	if err != nil {
		return event{}, violation{fmt.Errorf("a bookmark's %w", err)}
	}
	if revision < f.seen {
		return event{}, violation{fmt.Errorf("a bookmark at revision %v, behind %v", revision, f.seen)}
	}
	ends, err := d.endsList()
	if err != nil {
		return event{}, undecoded{err}
	}
	return event{revision: revision, ends: ends}, nil
}

// unwrap takes an event's object out of the table of one row that it comes in
// when tables were asked for. What is no table, or has no row, stays what it is.
func (f *frames) unwrap(d draft) (draft, *row, error) {
	if d.kind != "Table" || !strings.HasPrefix(d.apiVersion, metav1.GroupName+"/") {
		return d, nil, nil
	}
	var r *row
	rows := 0
	table := pageReader{cutter: newCutter(bytes.NewReader(d.text)), listing: &listing{}}
	table.visit = func(inner draft, its *row) error {
		d, r = inner, its
		rows++
		return nil
	}
	if err := table.read(); err != nil {
		return draft{}, nil, violation{fmt.Errorf("a table: %w", err)}
	}
	if rows > 1 {
		return draft{}, nil, violation{fmt.Errorf("an event with %d objects", rows)}
	}
	f.source.remember(table.columns)
	if r != nil {
		r.columns = f.source.known()
	}
	return d, r, nil
}

// fault makes a failure of an ERROR event.
func (f *frames) fault(d draft) *keepwatch.Failure {
	s, ok := d.status()
	if !ok {
		s = &metav1.Status{Message: "an error without a status"}
	}
	return f.judge(s, 0)
}
