package kube

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonFrames reads the frames of a watch in JSON.
type jsonFrames struct{ *splitter }

func (f jsonFrames) frame() (kind string, raw rawObject, err error) {
	f.beginPart()
	switch f.PeekKind() {
	case jsontext.KindBeginObject:
	case jsontext.KindInvalid:
		_, err := f.ReadToken()
		return "", rawObject{}, err
	default:
		return "", rawObject{}, errors.New("an event is not a JSON object")
	}
	err = f.members(func(name field) (err error) {
		switch name {
		case fieldType:
			kind, err = f.string()
		case fieldObject:
			raw, err = f.object()
		default:
			err = f.SkipValue()
		}
		return err
	})
	return kind, raw, err
}
