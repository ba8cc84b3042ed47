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

func newPageBuilder(x *exchange, builder builder) *pageBuilder {
	b := &pageBuilder{op: x.op, builder: builder}
	b.visit = b.add
	if x.encoding == Protobuf {
		b.read = newProtobufPage(x, builder, &b.partialPage).read
	} else {
		b.read = (&jsonPage{x.splitter(builder), &b.partialPage}).read
	}
	return b
}

func (b *pageBuilder) add(raw rawObject, r *row) error {
	if b.kind != "" && b.apiVersion != "" && r == nil {
		b.builder.itemType = b.itemType()
	}
	o, err := b.builder.build(raw, r)
	if err != nil {
		return err
	}
	b.objects = append(b.objects, o)
	return nil
}

// itemType derives the items' type from the list's kind: items of built-in kinds have no
// type of their own.
func (b *pageBuilder) itemType() typeMeta {
	return typeMeta{b.apiVersion, strings.TrimSuffix(b.kind, "List")}
}

// page reads the list to its end, and returns it. Types and columns that follow the items
// in the text are added to them.
func (b *pageBuilder) page() (keepwatch.Page, error) {
	if err := b.read(); err != nil {
		return keepwatch.Page{}, err
	}
	revision, err := keepwatch.ParseRevision(b.revision)
	if err != nil {
		return keepwatch.Page{}, unversioned{violation{fmt.Errorf("the list's %w", err)}}
	}
	b.builder.itemType = b.itemType()
	for _, o := range b.objects {
		o, ok := o.(*Object)
		if !ok {
			break // all are Decode's objects
		}
		if o.row != nil {
			o.row.columns = b.columns
		} else {
			b.builder.completeType(o)
		}
	}
	return keepwatch.Page{
		Revision: revision, Objects: b.objects, Skipped: b.skippedFailures(), Continue: b.next, Remaining: b.remaining,
	}, nil
}

// skippedFailures returns the failures of the skipped objects.
func (b *pageBuilder) skippedFailures() []*keepwatch.Failure {
	var all []*keepwatch.Failure
	for _, err := range b.skipped {
		kind := keepwatch.Undecodable
		if as[violation](err) {
			kind = keepwatch.ProtocolViolation
		}
		all = append(all, keepwatch.Failed(kind, "%s: %w", b.op, err))
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
func (p *partialPage) skipItem(err error) error {
	if as[violation](err) || as[decodeError](err) {
		p.skipped = append(p.skipped, err)
		return nil
	}
	return err
}
