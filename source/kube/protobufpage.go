package kube

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufPage reads a list in protobuf while it arrives. It buffers one item at a time.
type protobufPage struct {
	*wireReader
	*partialPage
	dropManaged bool
	typeMeta    runtime.TypeMeta
	listMeta    metav1.ListMeta
	listRead    bool
}

func newProtobufPage(x *exchange, m builder, l *partialPage) *protobufPage {
	return &protobufPage{wireReader: newWireReader(x), partialPage: l, dropManaged: m.dropManaged}
}

// read reads the list in its envelope.
func (p *protobufPage) read() error {
	p.beginPart()
	if prefix, err := p.readN(uint64(len(magic))); err != nil {
		return unexpected(err)
	} else if !bytes.Equal(prefix, magic) {
		return errNoMagic
	}
	for {
		p.beginPart()
		number, kind, err := p.tag(unknownFields...)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := p.envelope(number, kind); err != nil {
			return err
		}
	}
}

func (p *protobufPage) envelope(number protowire.Number, kind protowire.Type) error {
	switch number {
	case unknownRaw:
		n, err := binary.ReadUvarint(p)
		if err != nil {
			return unexpected(err)
		}
		if p.listRead {
			return errors.New("a response with two lists")
		}
		p.listRead = true
		return p.list(n)
	case unknownTypeMeta:
		value, err := p.value()
		if err == nil {
			err = p.typeMeta.Unmarshal(value)
		}
		p.apiVersion, p.kind = p.typeMeta.APIVersion, p.typeMeta.Kind
		return err
	case unknownContentEncoding:
		if value, err := p.value(); err != nil || len(value) > 0 {
			return errors.Join(err, fmt.Errorf("a list in the unknown encoding %q", value))
		}
		return nil
	}
	return p.skipField(kind)
}

// value reads a value with a length.
func (p *protobufPage) value() ([]byte, error) {
	n, err := binary.ReadUvarint(p)
	if err != nil {
		return nil, unexpected(err)
	}
	value, err := p.readN(n)
	return value, unexpected(err)
}

// list reads the n bytes of the list itself.
func (p *protobufPage) list(n uint64) error {
	end := uint64(p.offset) + n
	for uint64(p.offset) < end {
		p.beginPart()
		number, kind, err := p.tag(listMetadata, listItems)
		if err != nil {
			return unexpected(err)
		}
		switch number {
		case listMetadata:
			var value []byte
			if value, err = p.value(); err == nil {
				err = p.metadata(value)
			}
		case listItems:
			err = p.item()
		default:
			err = p.skipField(kind)
		}
		if err != nil {
			return err
		}
	}
	if uint64(p.offset) != end {
		return errors.New("a list's length does not fit its items")
	}
	return nil
}

func (p *protobufPage) metadata(value []byte) error {
	if err := p.listMeta.Unmarshal(value); err != nil {
		return err
	}
	p.revision, p.partialPage.next = p.listMeta.ResourceVersion, p.listMeta.Continue
	if n := p.listMeta.RemainingItemCount; n != nil {
		p.remaining = max(0, *n)
	}
	return nil
}

// item reads an item. It skips an item that is too long, undecodable or invalid.
func (p *protobufPage) item() error {
	n, err := binary.ReadUvarint(p)
	if err != nil {
		return unexpected(err)
	}
	p.beginPart()
	if limit := p.body.limit; n > uint64(limit) {
		prefix, _ := p.Peek(p.chunkSize(n))
		raw, _ := parseProtobufObject(prefix)
		if err := p.skip(n); err != nil {
			return err
		}
		return p.skipItem(raw.tooLongError(tooLong(limit)))
	}
	text, err := p.readN(n)
	if err != nil {
		return unexpected(err)
	}
	raw, err := parseProtobufObject(text)
	if err != nil {
		return p.skipItem(decodeError{fmt.Errorf("%s: %w", raw.displayName(), err)})
	}
	if p.dropManaged {
		raw.text = withoutManagedFields(raw.text)
	}
	return p.skipItem(p.visit(raw, nil))
}
