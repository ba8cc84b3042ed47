package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// listing is what is known of a list or a table while it is read.
type listing struct {
	// visit takes each item or row; r is nil but for a row. A violation concerns that
	// one alone, and so does what is undecoded.
	visit func(d draft, r *row) error
	// withheld is why items and rows were left out.
	withheld []error

	apiVersion, kind string
	revision, next   string
	remaining        int64
	columns          []metav1.TableColumnDefinition
}

// leave leaves an item or a row out, if err concerns it alone; any other error
// comes back.
func (l *listing) leave(err error) error {
	if as[violation](err) || as[undecoded](err) {
		l.withheld = append(l.withheld, err)
		return nil
	}
	return err
}

// oversized is why an object is left out that is longer than the bound.
func (d draft) oversized(bound tooLong) error {
	return undecoded{fmt.Errorf("%s is longer than %d bytes", d.title(), int64(bound))}
}

// pageReader reads a list or a table in JSON while it arrives, in whatever order
// its members come: a list of custom resources has its items before its kind.
type pageReader struct {
	*cutter
	*listing
}

// read reads the list, and makes sure that nothing is behind it.
func (p *pageReader) read() error {
	p.begin()
	if kind := p.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return errors.New("the answer is not a JSON object")
	}
	if err := p.members(p.member); err != nil {
		return err
	}
	p.begin()
	switch _, err := p.ReadToken(); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("the list is followed by something else")
	default:
		return err
	}
}

func (p *pageReader) member(name field) (err error) {
	p.begin()
	switch name {
	case fieldAPIVersion:
		p.apiVersion, err = p.string()
	case fieldKind:
		p.kind, err = p.string()
	case fieldMetadata:
		err = p.members(p.listMetadata)
	case fieldColumns:
		err = p.decode(&p.columns, json.Unmarshal)
	case fieldItems:
		err = p.parts((*pageReader).item)
	case fieldRows:
		err = p.parts((*pageReader).tableRow)
	default:
		err = p.SkipValue()
	}
	return err
}

func (p *pageReader) listMetadata(name field) (err error) {
	switch name {
	case fieldResourceVersion:
		p.revision, err = p.string()
	case fieldContinue:
		p.next, err = p.string()
	case fieldRemaining:
		p.remaining, err = p.count()
	default:
		err = p.SkipValue()
	}
	return err
}

// parts reads items or rows.
func (p *pageReader) parts(read func(*pageReader) (draft, *row, error)) error {
	return p.elements(func() error { return p.part(read) })
}

// part reads an item or a row. One that is too long, or that can't be followed, is
// left out: no list would ever come to its end for its sake.
func (p *pageReader) part(read func(*pageReader) (draft, *row, error)) error {
	p.begin()
	depth := p.StackDepth()
	d, r, err := read(p)
	if err == nil {
		err = p.visit(d, r)
	}
	if bound := tooLong(0); errors.As(err, &bound) && p.StackDepth() > depth {
		err = d.oversized(bound)
		if err := p.skip(depth); err != nil {
			return err
		}
	}
	return p.leave(err)
}

// skip passes over what is left of a value, down to the depth at which it began.
// Nothing is kept of it but one string at a time, which is bounded like an object.
func (p *pageReader) skip(depth int) error {
	for p.StackDepth() > depth {
		p.begin()
		if _, err := p.ReadToken(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pageReader) item() (draft, *row, error) {
	d, err := p.object()
	return d, nil, err
}

func (p *pageReader) tableRow() (draft, *row, error) {
	var d draft
	var r row
	err := p.members(func(name field) (err error) {
		switch name {
		case fieldCells:
			err = p.decode(&r.cells, utiljson.Unmarshal) // integers stay integers
		case fieldObject:
			d, err = p.object()
		default:
			err = p.SkipValue()
		}
		return err
	})
	return d, &r, err
}

// decode reads the next value into a Go value.
func (p *pageReader) decode(into any, unmarshal func([]byte, any) error) error {
	v, err := p.ReadValue()
	if err != nil {
		return err
	}
	return unmarshal(v, into)
}

// count reads the next value, and returns it if it is a positive number.
func (p *pageReader) count() (int64, error) {
	v, err := p.ReadValue()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, nil // an estimate is not worth a failure
	}
	return max(0, n), nil
}
