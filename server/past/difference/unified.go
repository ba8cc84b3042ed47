package difference

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Shown says what a text shows besides desired state and metadata.
type Shown struct {
	Status, ManagedFields bool
}

// Unified returns a difference as a unified diff of YAML, "" if the shown parts are equal. Times are in a zone.
func (d Difference) Unified(shown Shown, zone *time.Location) (string, error) {
	before, err := shown.YAML(d.Before)
	if err != nil {
		return "", err
	}
	after, err := shown.YAML(d.After)
	if err != nil || before == after {
		return "", err
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(before), B: lines(after), FromFile: title(d.Before, zone), ToFile: title(d.After, zone), Context: 3,
	})
}

// lines splits a text after its line breaks. No text has no line.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return slices.Collect(strings.Lines(text))
}

// title returns the line of a state above a diff.
func title(s *sink.State, zone *time.Location) string {
	if s == nil {
		return "/dev/null"
	}
	return fmt.Sprintf("%s\trevision %d, %s", Name(s), s.From.Revision, s.SeenFrom.In(zone).Format(time.RFC3339))
}

// Name returns the name of an object as kubectl's arguments have it.
func Name(s *sink.State) string {
	name := s.Resource + "/" + s.Key.Name
	if s.Key.Namespace != "" {
		name += " -n " + s.Key.Namespace
	}
	return name
}

// YAML returns a state as YAML without what is not shown, "" if there is none.
func (shown Shown) YAML(s *sink.State) (string, error) {
	if s == nil {
		return "", nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(s.Object, &object); err != nil {
		return "", fmt.Errorf("%s at revision %d: %w", Name(s), s.From.Revision, err)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
		if !shown.ManagedFields {
			delete(metadata, "managedFields")
		}
	}
	if !shown.Status {
		delete(object, "status")
	}
	text, err := yaml.Marshal(object)
	return string(text), err
}
