package kube

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonPage reads a list or a table in JSON while it arrives. The members may have any
// order: a list of custom resources has its items before its kind.
type jsonPage struct {
	*splitter
	*partialPage
}

// read reads the list, and checks that nothing follows it.
func (p *jsonPage) read() error {
	p.beginPart()
	if kind := p.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return errors.New("the response is not a JSON object")
	}
	if err := p.members(p.member); err != nil {
		return err
	}
	p.beginPart()
	switch _, err := p.ReadToken(); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("data follows the list")
	default:
		return err
	}
}

func (p *jsonPage) member(name field) (err error) {
	p.beginPart()
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
		err = p.parts((*jsonPage).item)
	case fieldRows:
		err = p.parts((*jsonPage).tableRow)
	default:
		err = p.SkipValue()
	}
	return err
}

func (p *jsonPage) listMetadata(name field) (err error) {
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
func (p *jsonPage) parts(read func(*jsonPage) (rawObject, *row, error)) error {
	return p.elements(func() error { return p.part(read) })
}

// part reads an item or a row. It skips an item that is too long or invalid: otherwise no
// list could succeed while the object exists.
func (p *jsonPage) part(read func(*jsonPage) (rawObject, *row, error)) error {
	p.beginPart()
	depth := p.StackDepth()
	raw, r, err := read(p)
	if err == nil {
		err = p.visit(raw, r)
	}
	if bound := tooLong(0); errors.As(err, &bound) && p.StackDepth() > depth {
		err = raw.tooLongError(bound)
		if err := p.skipRest(depth); err != nil {
			return err
		}
	}
	return p.skipItem(err)
}

// skipRest skips the rest of a value, down to the depth at which it began. It buffers one
// string at a time, which is bounded like an object.
func (p *jsonPage) skipRest(depth int) error {
	for p.StackDepth() > depth {
		p.beginPart()
		if _, err := p.ReadToken(); err != nil {
			return err
		}
	}
	return nil
}

func (p *jsonPage) item() (rawObject, *row, error) {
	raw, err := p.object()
	return raw, nil, err
}

func (p *jsonPage) tableRow() (rawObject, *row, error) {
	var raw rawObject
	var r row
	err := p.members(func(name field) (err error) {
		switch name {
		case fieldCells:
			err = p.decode(&r.cells, utiljson.Unmarshal) // integers stay integers
		case fieldObject:
			raw, err = p.object()
		default:
			err = p.SkipValue()
		}
		return err
	})
	return raw, &r, err
}

// decode reads the next value into a Go value.
func (p *jsonPage) decode(into any, unmarshal func([]byte, any) error) error {
	v, err := p.ReadValue()
	if err != nil {
		return err
	}
	return unmarshal(v, into)
}

// count reads the next value, and returns it if it is a positive number.
func (p *jsonPage) count() (int64, error) {
	v, err := p.ReadValue()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, nil // an invalid estimate is ignored
	}
	return max(0, n), nil
}
