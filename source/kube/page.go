package kube

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// pageBuilder builds a page while its response is being read.
type pageBuilder struct {
	partialPage
	read    func() error // reads the response to its end
	op      string
	builder builder
	objects []keepwatch.Object
}

func newPageBuilder(x *exchange, m builder) *pageBuilder {
	l := &pageBuilder{op: x.op, builder: m}
	l.visit = l.add
	if x.encoding == Protobuf {
		l.read = newProtobufPage(x, m, &l.partialPage).read
	} else {
		l.read = (&jsonPage{x.splitter(m), &l.partialPage}).read
	}
	return l
}

func (l *pageBuilder) add(raw rawObject, r *row) error {
	if l.kind != "" && l.apiVersion != "" && r == nil {
		l.builder.itemType = l.itemType()
	}
	o, err := l.builder.build(raw, r)
	if err != nil {
		return err
	}
	l.objects = append(l.objects, o)
	return nil
}

// itemType derives the items' type from the list's kind: items of built-in kinds have no
// type of their own.
func (l *pageBuilder) itemType() typeMeta {
	return typeMeta{l.apiVersion, strings.TrimSuffix(l.kind, "List")}
}

// page reads the list to its end, and returns it. Types and columns that follow the items
// in the text are added to them.
func (l *pageBuilder) page() (keepwatch.Page, error) {
	if err := l.read(); err != nil {
		return keepwatch.Page{}, err
	}
	revision, err := keepwatch.ParseRevision(l.revision)
	if err != nil {
		return keepwatch.Page{}, violation{fmt.Errorf("the list's %w", err)}
	}
	l.builder.itemType = l.itemType()
	for _, o := range l.objects {
		o, ok := o.(*Object)
		if !ok {
			break // all are Decode's objects
		}
		if o.row != nil {
			o.row.columns = l.columns
		} else {
			l.builder.completeType(o)
		}
	}
	return keepwatch.Page{
		Revision: revision, Objects: l.objects, Skipped: l.skippedFailures(), Continue: l.next, Remaining: l.remaining,
	}, nil
}

// skippedFailures returns the failures of the skipped objects.
func (l *pageBuilder) skippedFailures() []*keepwatch.Failure {
	var all []*keepwatch.Failure
	for _, err := range l.skipped {
		kind := keepwatch.Undecodable
		if as[violation](err) {
			kind = keepwatch.ProtocolViolation
		}
		all = append(all, keepwatch.Failed(kind, "%s: %w", l.op, err))
	}
	return all
}

// partialPage is the content of a list or a table, as far as it was read.
type partialPage struct {
	// visit receives each item or row; r is nil for an item. A violation or a decodeError
	// concerns that item alone.
	visit func(raw rawObject, r *row) error
	// skipped has the errors of the skipped items and rows.
	skipped []error

	apiVersion, kind string
	revision, next   string
	remaining        int64
	columns          []metav1.TableColumnDefinition
}

// skipItem records err if it concerns one item alone, and returns any other error.
func (l *partialPage) skipItem(err error) error {
	if as[violation](err) || as[decodeError](err) {
		l.skipped = append(l.skipped, err)
		return nil
	}
	return err
}
