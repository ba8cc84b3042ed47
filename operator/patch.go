package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// Patch collects changes of an object. They are sent as a merge patch: other fields stay,
// and lists are replaced as a whole. The status is sent to its own endpoint if the
// resource has one. A Patch is safe for concurrent use.
type Patch struct {
	mu            sync.Mutex
	merge, status map[string]any
	err           error
	prefix        string     // of the operator's own annotations
	progress      cycle.Path // the operator's own field, nil for none
}

// Set sets a field, like "spec.size", to a value that JSON can express. A dot in a
// name has a backslash before it.
func (p *Patch) Set(field string, value any) {
	path, err := cycle.ParsePath(field)
	if err != nil {
		p.fail(err)
		return
	}
	p.set(path, value)
}

// Remove removes a field.
func (p *Patch) Remove(field string) { p.Set(field, nil) }

// Status sets a field of the status, named from there: "phase", "limits.cpu".
func (p *Patch) Status(field string, value any) { p.Set("status."+field, value) }

// Label sets a label.
func (p *Patch) Label(name, value string) { p.set([]string{"metadata", "labels", name}, value) }

// Annotation sets an annotation.
func (p *Patch) Annotation(name, value string) {
	p.set([]string{"metadata", "annotations", name}, value)
}

// set adds a change. The first change that is invalid becomes the handler's error.
func (p *Patch) set(path []string, value any) {
	if err := p.validate(path); err != nil {
		p.fail(err)
		return
	}
	normal, err := normalize(map[string]any{"value": value})
	if err != nil {
		p.fail(fmt.Errorf("patch of %s: %w", cycle.Path(path), err))
		return
	}
	if err := p.validateAnnotations(path, normal["value"]); err != nil {
		p.fail(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	into, path := &p.merge, slices.Clone(path)
	if path[0] == "status" && len(path) > 1 {
		into, path = &p.status, path[1:]
	}
	if *into == nil {
		*into = map[string]any{}
	}
	insert(*into, path, normal["value"])
}

// validate returns an error if handlers cannot patch a field.
func (p *Patch) validate(path []string) error {
	switch {
	case path[0] == "apiVersion", path[0] == "kind":
		return fmt.Errorf("patch of %s: it cannot be changed", path[0])
	case path[0] == "status" && len(path) == 1, path[0] == "metadata" && len(path) == 1:
		return fmt.Errorf("patch of %s: name the fields in it", path[0])
	case p.progress != nil && cycle.Path(path).Meets(p.progress):
		return fmt.Errorf("patch of %s: %s is the operator's", cycle.Path(path), p.progress)
	case path[0] != "metadata":
		return nil
	case path[1] == "annotations" && len(path) > 2 && p.isOwn(path[2]):
		return fmt.Errorf("patch of annotation %s: annotations with this prefix are the operator's", path[2])
	case slices.Contains([]string{"labels", "annotations", "ownerReferences", "finalizers"}, path[1]):
		return nil
	}
	return fmt.Errorf("patch of metadata.%s: only labels, annotations, ownerReferences and finalizers can be changed",
		path[1])
}

// validateAnnotations returns an error if a value of all annotations would change the operator's.
func (p *Patch) validateAnnotations(path []string, value any) error {
	if !slices.Equal(path, []string{"metadata", "annotations"}) {
		return nil
	}
	all, ok := value.(map[string]any)
	if !ok {
		return errors.New("patch of metadata.annotations: name the annotation: the operator's are among them")
	}
	for name := range all {
		if p.isOwn(name) {
			return fmt.Errorf("patch of annotation %s: annotations with this prefix are the operator's", name)
		}
	}
	return nil
}

// isOwn reports whether an annotation is the operator's.
func (p *Patch) isOwn(annotation string) bool { return strings.HasPrefix(annotation, p.prefix+"/") }

func (p *Patch) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = Permanent(err)
	}
}

// drain returns the changes and empties the patch. If a change is invalid, it returns an
// error and no changes.
func (p *Patch) drain() (write.Outgoing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := write.Outgoing{Merge: p.merge, Status: p.status}, p.err
	p.merge, p.status, p.err = nil, nil, nil
	if err != nil {
		return write.Outgoing{}, err
	}
	return out, nil
}

// insert puts a value into a merge patch.
func insert(m map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		next, ok := m[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[name] = next
		}
		m = next
	}
	last := path[len(path)-1]
	old, wasMap := m[last].(map[string]any)
	new, isMap := value.(map[string]any)
	if !wasMap || !isMap {
		m[last] = value
		return
	}
	for name, field := range new { // as the server merges one patch after the other
		insert(old, []string{name}, field)
	}
}
