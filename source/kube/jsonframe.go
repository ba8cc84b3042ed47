package kube

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonFrames are the frames of a watch in JSON.
type jsonFrames struct{ *cutter }

func (f jsonFrames) frame() (kind string, d draft, err error) {
	f.begin()
	switch f.PeekKind() {
	case jsontext.KindBeginObject:
	case jsontext.KindInvalid:
		_, err := f.ReadToken()
		return "", draft{}, err
	default:
		return "", draft{}, errors.New("an event is not a JSON object")
	}
	err = f.members(func(name field) (err error) {
		switch name {
		case fieldType:
			kind, err = f.string()
		case fieldObject:
			d, err = f.object()
		default:
			err = f.SkipValue()
		}
		return err
	})
	return kind, d, err
}
