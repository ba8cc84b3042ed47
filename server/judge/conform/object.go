package conform

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keepwatch/keepwatch"
)

// object is one state of an object, as a server returns it. It implements keepwatch.Object.
type object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	labels   map[string]string
	value    string // the part of the content that the writers set
}

func (o *object) Key() keepwatch.Key           { return o.key }
func (o *object) UID() keepwatch.UID           { return o.uid }
func (o *object) Revision() keepwatch.Revision { return o.revision }

// content returns what must arrive unchanged, besides key, UID and revision.
func (o *object) content() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.labels)) {
		fmt.Fprintf(&b, "%s=%s,", name, o.labels[name])
	}
	return b.String() + o.value
}

func (o *object) String() string {
	if o == nil {
		return "no object"
	}
	return fmt.Sprintf("%s at %d", o.key.Name, o.revision)
}

// state returns the object with its content.
func (o *object) state() string {
	if o == nil {
		return o.String()
	}
	return fmt.Sprintf("%v with %q", o, o.content())
}

// is reports whether the object is a state.
func (o *object) is(state *object) bool {
	return o != nil && o.revision == state.revision && o.content() == state.content()
}

// isNotOlder reports whether the object is a state, or a later one.
func (o *object) isNotOlder(state *object) bool {
	return o != nil && (o.revision > state.revision || o.is(state))
}

// parseObject parses an object in JSON. A ConfigMap has its value in data, a probe in spec.
func parseObject(raw []byte) (*object, error) {
	var parsed struct {
		Metadata struct {
			Namespace, Name, UID, ResourceVersion string
			Labels                                map[string]string
		}
		Data, Spec struct{ Value string }
	}
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, fmt.Errorf("object %.200q: %w", raw, err)
	}
	m := parsed.Metadata
	revision, err := parseRevision(m.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return &object{
		key: keepwatch.Key{Namespace: m.Namespace, Name: m.Name}, uid: keepwatch.UID(m.UID), revision: revision,
		labels: m.Labels, value: parsed.Data.Value + parsed.Spec.Value,
	}, nil
}

// parseRevision parses a resourceVersion. KEP-5504 guarantees that it is a decimal number.
func parseRevision(text string) (keepwatch.Revision, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is not a decimal number", text)
	}
	return keepwatch.Revision(n), nil
}
