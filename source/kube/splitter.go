package kube

import (
	"bufio"
	"bytes"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonOptions are the options for reading and writing JSON. Duplicate names are allowed,
// as in every Kubernetes client: detecting them costs a set per JSON object. Strings are
// copied unchanged.
var jsonOptions = []jsontext.Options{
	jsontext.AllowDuplicateNames(true),
	jsontext.PreserveRawStrings(true),
}

// splitter splits a stream of JSON into objects. In one pass it validates each object,
// makes it compact, and reads its main fields.
type splitter struct {
	*jsontext.Decoder
	// allowPart, if set, receives the input offset at which the next part begins, so that
	// the body can bound the part's length.
	allowPart func(offset int64)
	text      []byte // of the newest object
	// dropManaged removes managedFields.
	dropManaged bool

	// last has the newest values of strings that objects have in common.
	last struct{ apiVersion, kind, namespace string }
}

// readBufferSize is the size of one read from a response. A JSON decoder alone reads
// 4 KiB; HTTP/2 then sends a window update each time, which costs both sides as much as
// the decoding.
const readBufferSize = 128 << 10

// splitter returns a splitter of the response.
func (x *exchange) splitter(m builder) *splitter {
	s := newSplitter(bufio.NewReaderSize(x.body, readBufferSize))
	s.allowPart, s.dropManaged = x.body.allowPart, m.dropManaged
	return s
}

func newSplitter(r io.Reader) *splitter {
	return &splitter{Decoder: jsontext.NewDecoder(r, jsonOptions...)}
}

// beginPart begins a part of the stream, which may have the allowed length.
func (s *splitter) beginPart() {
	if s.allowPart != nil {
		s.allowPart(s.InputOffset())
	}
}

// object reads the next value. The result has no text if the value is not a JSON object.
// With an error object returns the fields that precede it.
func (s *splitter) object() (rawObject, error) {
	if s.PeekKind() != jsontext.KindBeginObject {
		return rawObject{}, s.SkipValue()
	}
	var raw rawObject
	_, _ = s.ReadToken() // the '{' that was peeked at
	s.text = append(s.text[:0], '{')
	for s.PeekKind() == jsontext.KindString {
		name, err := s.name()
		if err != nil {
			return raw, err
		}
		switch name {
		case fieldMetadata:
			err = s.metadata(&raw)
		case fieldAPIVersion:
			raw.apiVersion, err = s.copyString(&s.last.apiVersion)
		case fieldKind:
			raw.kind, err = s.copyString(&s.last.kind)
		default:
			err = s.copyValue()
		}
		if err != nil {
			return raw, err
		}
	}
	if _, err := s.ReadToken(); err != nil { // '}', or an error
		return raw, err
	}
	s.text = append(s.text, '}')
	raw.text = s.text
	return raw, nil
}

// metadata copies the value of "metadata" and records its position. If there are several,
// the last one counts, as in any JSON decoder.
func (s *splitter) metadata(raw *rawObject) error {
	from := int32(len(s.text))
	*raw = rawObject{apiVersion: raw.apiVersion, kind: raw.kind, metadata: span{from, from}, managed: span{from, from}}
	defer func() { raw.metadata.to = int32(len(s.text)) }()
	if s.PeekKind() != jsontext.KindBeginObject {
		return s.copyValue()
	}
	_, _ = s.ReadToken()
	s.text = append(s.text, '{')
	first := from + 1
	for s.PeekKind() == jsontext.KindString {
		before := int32(len(s.text))
		name, err := s.name()
		if err != nil {
			return err
		}
		if raw.managed.from == first && raw.managed.to == before {
			raw.managed.to++ // of the first member, the comma that follows belongs to it
		}
		switch name {
		case fieldName:
			raw.name, err = s.copyString(nil)
		case fieldNamespace:
			raw.namespace, err = s.copyString(&s.last.namespace)
		case fieldUID:
			raw.uid, err = s.copyString(nil)
		case fieldResourceVersion:
			raw.revision, err = s.copyString(nil)
		case fieldManagedFields:
			err = s.managed(raw, before)
		default:
			err = s.copyValue()
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.ReadToken(); err != nil {
		return err
	}
	s.text = append(s.text, '}')
	return nil
}

// managed copies managedFields and records their position, or drops them. before is the
// position of their name.
func (s *splitter) managed(raw *rawObject, before int32) error {
	if s.dropManaged {
		s.text = s.text[:before]
		return s.SkipValue()
	}
	err := s.copyValue()
	raw.managed = span{before, int32(len(s.text))}
	return err
}

// field is a member's name that the package interprets.
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

// name reads a member's name and copies it, with comma and colon.
func (s *splitter) name() (field, error) {
	v, err := s.ReadValue()
	if err != nil {
		return fieldOther, err
	}
	if s.text[len(s.text)-1] != '{' {
		s.text = append(s.text, ',')
	}
	s.text = append(append(s.text, v...), ':')
	return fieldOf(unquote(v)), nil
}

// copyValue copies the next value of any type.
func (s *splitter) copyValue() error {
	v, err := s.ReadValue()
	if err != nil {
		return err
	}
	return s.append(v)
}

// copyString copies the next value, and returns it if it is a string: as last,
// if it is the same.
func (s *splitter) copyString(last *string) (string, error) {
	v, err := s.ReadValue()
	if err != nil {
		return "", err
	}
	value := share(v, last)
	return value, s.append(v)
}

// append appends a value to the text. A value with a line break is indented, and is made
// compact.
func (s *splitter) append(v jsontext.Value) (err error) {
	if bytes.IndexByte(v, '\n') < 0 {
		s.text = append(s.text, v...)
		return nil
	}
	s.text, err = jsontext.AppendFormat(s.text, v, jsonOptions...)
	return err
}

// members reads a JSON object whose text is not needed; visit has to read each
// member's value.
func (s *splitter) members(visit func(field) error) error {
	if kind := s.PeekKind(); kind != jsontext.KindBeginObject {
		return s.SkipValue()
	}
	_, _ = s.ReadToken()
	for s.PeekKind() == jsontext.KindString {
		v, err := s.ReadValue()
		if err != nil {
			return err
		}
		if err := visit(fieldOf(unquote(v))); err != nil {
			return err
		}
	}
	_, err := s.ReadToken()
	return err
}

// elements reads a JSON array; visit has to read each element.
func (s *splitter) elements(visit func() error) error {
	if s.PeekKind() != jsontext.KindBeginArray {
		return s.SkipValue()
	}
	_, _ = s.ReadToken()
	for {
		switch s.PeekKind() {
		case jsontext.KindEndArray, jsontext.KindInvalid:
			_, err := s.ReadToken()
			return err
		}
		if err := visit(); err != nil {
			return err
		}
	}
}

// string reads the next value, and returns it if it is a string.
func (s *splitter) string() (string, error) {
	v, err := s.ReadValue()
	if err != nil {
		return "", err
	}
	return share(v, nil), nil
}

// share returns the decoded string v, empty for other values. If it equals *last, share
// returns *last, so that a page has a namespace's name in memory once.
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

// unquote decodes a valid JSON string. Without escapes the result is part of v.
func unquote(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	b, _ := jsontext.AppendUnquote(nil, v)
	return b
}
