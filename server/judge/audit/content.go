package audit

import (
	"errors"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// content is the members of an object that are compared, as JSON.
type content map[string]jsontext.Value

// parseContent returns the content of an object's text. With contentsOnly it leaves out what
// each cluster sets itself.
func parseContent(text []byte, contentsOnly bool) (content, error) {
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, withoutText(err)
	}
	// A list may have them once for all objects.
	delete(c, "apiVersion")
	delete(c, "kind")
	if contentsOnly {
		if err := c.dropOwn(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ownMetadata are the members of metadata that each cluster sets itself.
var ownMetadata = []string{"resourceVersion", "uid", "managedFields", "creationTimestamp", "generation"}

// dropOwn removes what each cluster sets itself.
func (c content) dropOwn() error {
	var metadata content
	if err := json.Unmarshal(c["metadata"], &metadata); err != nil {
		return withoutText(err)
	}
	for _, name := range ownMetadata {
		delete(metadata, name)
	}
	if owners, ok := metadata["ownerReferences"]; ok {
		var all []content
		if err := json.Unmarshal(owners, &all); err != nil {
			return withoutText(err)
		}
		for _, owner := range all {
			delete(owner, "uid")
		}
		var err error
		if metadata["ownerReferences"], err = json.Marshal(all); err != nil {
			return withoutText(err)
		}
	}
	text, err := json.Marshal(metadata)
	c["metadata"] = text
	return err
}

// canonical returns the content as JSON with the members in the order of their names and each
// string in one spelling. Numbers are as they were.
func (c content) canonical() ([]byte, error) {
	text := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		value := c[name]
		if err := value.Format(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(false)); err != nil {
			return nil, withoutText(err)
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text, _ = jsontext.AppendQuote(text, name) // valid: it was parsed
		text = append(append(text, ':'), value...)
	}
	return append(text, '}'), nil
}

// withoutText returns an error without the text that is invalid, which may be secret.
func withoutText(err error) error {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return errors.New("a member occurs twice in " + string(syntactic.JSONPointer.Parent()))
	}
	return errors.New("not an object in JSON with metadata")
}
