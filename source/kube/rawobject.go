package kube

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// rawObject is the text of one object and its main fields, not validated yet. Missing
// fields are empty.
type rawObject struct {
	text             []byte // valid until the reader's next object
	encoding         Encoding
	apiVersion, kind string
	namespace, name  string
	uid, revision    string
	metadata         span // in JSON: zero or a valid part of text; managed lies within it
	managed          span
}

// status parses the object as a Status, and reports whether it is one.
func (raw rawObject) status() (*metav1.Status, bool) {
	if raw.encoding == JSON {
		return parseStatus(raw.text)
	}
	var s metav1.Status
	return &s, raw.kind == "Status" && s.Unmarshal(raw.text) == nil
}

// endsList reports whether a bookmark says that the initial state is complete
// (KEP-3157). It returns an error if the bookmark's annotations can't be read.
func (raw rawObject) endsList() (bool, error) {
	annotations, err := raw.annotations()
	if err != nil {
		return false, fmt.Errorf("a bookmark's annotations: %w", err)
	}
	return annotations[metav1.InitialEventsAnnotationKey] == "true", nil
}

func (raw rawObject) annotations() (map[string]string, error) {
	if raw.encoding == Protobuf {
		var o metav1.PartialObjectMetadata
		err := o.Unmarshal(raw.text)
		return o.Annotations, err
	}
	var o struct {
		Metadata struct{ Annotations map[string]string }
	}
	err := json.Unmarshal(raw.text, &o)
	return o.Metadata.Annotations, err
}

// displayName returns the object's name for messages, if it is known.
func (raw rawObject) displayName() string {
	if raw.name == "" {
		return "an object"
	}
	return "object " + keepwatch.Key{Namespace: raw.namespace, Name: raw.name}.String()
}

// tooLongError returns the error of an object that is skipped because it exceeds the bound.
func (raw rawObject) tooLongError(bound tooLong) error {
	return decodeError{fmt.Errorf("%s is longer than %d bytes", raw.displayName(), int64(bound))}
}

// violation is an error of text that is well-formed and breaks the API's contract.
type violation struct{ error }

// unversioned is the violation of a list or an object without a revision.
type unversioned struct{ violation }

func (u unversioned) Unwrap() error { return u.violation }

// decodeError is the error of an object that is complete but can't be decoded.
type decodeError struct{ error }

func (u decodeError) Unwrap() error { return u.error }
