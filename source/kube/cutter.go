package kube

import (
	"bufio"
	"bytes"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonOptions are how text is read and written. Duplicate names are let pass,
// as every Kubernetes client does: to find them costs a set per JSON object.
// Strings keep their spelling.
var jsonOptions = []jsontext.Options{
	jsontext.AllowDuplicateNames(true),
	jsontext.PreserveRawStrings(true),
}

// cutter cuts objects out of a stream of JSON: in one pass each is checked,
// made compact, and searched for what is needed of it.
type cutter struct {
	*jsontext.Decoder
	// allow, where set, is told the offset in the input at which the next part
	// begins, so that the reader below can bound its length.
	allow func(offset int64)
	text  []byte // of the newest draft
	// dropManaged leaves managedFields out of drafts.
	dropManaged bool

	// last are the newest strings that repeat from object to object.
	last struct{ apiVersion, kind, namespace string }
}

// readAhead is how much of an answer is read at once, if it is there. A JSON
// decoder alone reads 4 KiB; HTTP/2 then says so to the server each time, which
// costs both sides as much as the decoding.
const readAhead = 128 << 10

// cutter is the cutter of an answer.
func (x *exchange) cutter(m maker) *cutter {
	c := newCutter(bufio.NewReaderSize(x.body, readAhead))
	c.allow, c.dropManaged = x.body.allow, m.dropManaged
	return c
}

func newCutter(r io.Reader) *cutter {
	return &cutter{Decoder: jsontext.NewDecoder(r, jsonOptions...)}
}

// begin says that the next part of the stream may be as long as is allowed.
func (c *cutter) begin() {
	if c.allow != nil {
		c.allow(c.InputOffset())
	}
}

// object cuts the next value, which is a draft without text if it is no JSON
// object. With an error comes what was read before it.
func (c *cutter) object() (draft, error) {
	if c.PeekKind() != jsontext.KindBeginObject {
		return draft{}, c.SkipValue()
	}
	var d draft
	_, _ = c.ReadToken() // the '{' that was peeked at
	c.text = append(c.text[:0], '{')
	for c.PeekKind() == jsontext.KindString {
		name, err := c.name()
		if err != nil {
			return d, err
		}
		switch name {
		case fieldMetadata:
			err = c.metadata(&d)
		case fieldAPIVersion:
			d.apiVersion, err = c.copyString(&c.last.apiVersion)
		case fieldKind:
			d.kind, err = c.copyString(&c.last.kind)
		default:
			err = c.copyValue()
		}
		if err != nil {
			return d, err
		}
	}
	if _, err := c.ReadToken(); err != nil { // '}', or whatever is wrong
		return d, err
	}
	c.text = append(c.text, '}')
	d.text = c.text
	return d, nil
}

// metadata copies the value of "metadata" and notes where it is. The last one
// counts, as to any JSON decoder, should there be several.
func (c *cutter) metadata(d *draft) error {
	from := int32(len(c.text))
	*d = draft{apiVersion: d.apiVersion, kind: d.kind, metadata: span{from, from}, managed: span{from, from}}
	defer func() { d.metadata.to = int32(len(c.text)) }()
	if c.PeekKind() != jsontext.KindBeginObject {
		return c.copyValue()
	}
	_, _ = c.ReadToken()
	c.text = append(c.text, '{')
	first := from + 1
	for c.PeekKind() == jsontext.KindString {
		before := int32(len(c.text))
		name, err := c.name()
		if err != nil {
			return err
		}
		if d.managed.from == first && d.managed.to == before {
			d.managed.to++ // as the first member it takes the comma behind it
		}
		switch name {
		case fieldName:
			d.name, err = c.copyString(nil)
		case fieldNamespace:
			d.namespace, err = c.copyString(&c.last.namespace)
		case fieldUID:
			d.uid, err = c.copyString(nil)
		case fieldResourceVersion:
			d.revision, err = c.copyString(nil)
		case fieldManagedFields:
			err = c.managed(d, before)
		default:
			err = c.copyValue()
		}
		if err != nil {
			return err
		}
	}
	if _, err := c.ReadToken(); err != nil {
		return err
	}
	c.text = append(c.text, '}')
	return nil
}

// managed copies managedFields and notes where they are, or drops them. before is
// where their name has begun.
func (c *cutter) managed(d *draft, before int32) error {
	if c.dropManaged {
		c.text = c.text[:before]
		return c.SkipValue()
	}
	err := c.copyValue()
	d.managed = span{before, int32(len(c.text))}
	return err
}

// field is a member's name that means something here.
type field uint8

const (
	fieldOther field = iota
	fieldAPIVersion
	fieldKind
	fieldMetadata
	fieldName
	fieldNamespace
	fieldUID
	fieldResourceVersion
	fieldManagedFields
	fieldContinue
	fieldRemaining
	fieldItems
	fieldRows
	fieldColumns
	fieldCells
	fieldObject
	fieldType
)

func fieldOf(name []byte) field {
	switch string(name) {
	case "apiVersion":
		return fieldAPIVersion
	case "kind":
		return fieldKind
	case "metadata":
		return fieldMetadata
	case "name":
		return fieldName
	case "namespace":
		return fieldNamespace
	case "uid":
		return fieldUID
	case "resourceVersion":
		return fieldResourceVersion
	case "managedFields":
		return fieldManagedFields
	case "continue":
		return fieldContinue
	case "remainingItemCount":
		return fieldRemaining
	case "items":
		return fieldItems
	case "rows":
		return fieldRows
	case "columnDefinitions":
		return fieldColumns
	case "cells":
		return fieldCells
	case "object":
		return fieldObject
	case "type":
		return fieldType
	}
	return fieldOther
}

// name reads a member's name and copies it, with what has to be around it.
func (c *cutter) name() (field, error) {
	v, err := c.ReadValue()
	if err != nil {
		return fieldOther, err
	}
	if c.text[len(c.text)-1] != '{' {
		c.text = append(c.text, ',')
	}
	c.text = append(append(c.text, v...), ':')
	return fieldOf(unquote(v)), nil
}

// copyValue copies the next value, whatever it is.
func (c *cutter) copyValue() error {
	v, err := c.ReadValue()
	if err != nil {
		return err
	}
	return c.append(v)
}

// copyString copies the next value, and returns it if it is a string: as last,
// if it is the same.
func (c *cutter) copyString(last *string) (string, error) {
	v, err := c.ReadValue()
	if err != nil {
		return "", err
	}
	s := share(v, last)
	return s, c.append(v)
}

// append adds a value to the text. A line break in JSON is white space between
// tokens, and the sign of an indented text.
func (c *cutter) append(v jsontext.Value) (err error) {
	if bytes.IndexByte(v, '\n') < 0 {
		c.text = append(c.text, v...)
		return nil
	}
	c.text, err = jsontext.AppendFormat(c.text, v, jsonOptions...)
	return err
}

// members reads a JSON object whose text is not needed; visit has to read each
// member's value.
func (c *cutter) members(visit func(field) error) error {
	if kind := c.PeekKind(); kind != jsontext.KindBeginObject {
		return c.SkipValue()
	}
	_, _ = c.ReadToken()
	for c.PeekKind() == jsontext.KindString {
		v, err := c.ReadValue()
		if err != nil {
			return err
		}
		if err := visit(fieldOf(unquote(v))); err != nil {
			return err
		}
	}
	_, err := c.ReadToken()
	return err
}

// elements reads a JSON array; visit has to read each element.
func (c *cutter) elements(visit func() error) error {
	if c.PeekKind() != jsontext.KindBeginArray {
		return c.SkipValue()
	}
	_, _ = c.ReadToken()
	for {
		switch c.PeekKind() {
		case jsontext.KindEndArray, jsontext.KindInvalid:
			_, err := c.ReadToken()
			return err
		}
		if err := visit(); err != nil {
			return err
		}
	}
}

// string reads the next value, and returns it if it is a string.
func (c *cutter) string() (string, error) {
	v, err := c.ReadValue()
	if err != nil {
		return "", err
	}
	return share(v, nil), nil
}

// share is the meaning of v, if it is a JSON string; the one that last holds,
// if it is the same, so that a page holds a namespace's name once.
func share(v jsontext.Value, last *string) string {
	if v.Kind() != jsontext.KindString {
		return ""
	}
	b := unquote(v)
	if last == nil {
		return string(b)
	}
	if string(b) != *last {
		*last = string(b)
	}
	return *last
}

// unquote is the meaning of a valid JSON string, in its own bytes where it can.
func unquote(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	b, _ := jsontext.AppendUnquote(nil, v)
	return b
}
