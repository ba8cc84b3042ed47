package cycle

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The space of progress.
const (
	maxAnnotations = 256 << 10 // of all annotations of an object, by the API: apimachinery's TotalAnnotationSizeLimitB
	maxObject      = 3 << 19   // of a request to etcd, by default
	// reserve stays free after a change is handled: for the records of the object's deletion, and for the condition.
	reserve = 4 << 10
)

// ErrNoSpace: the progress of a handler cannot be stored on the object. The handler is not called: it would be called
// for ever.
var ErrNoSpace = errors.New("the progress of handlers does not fit on the object")

// space is what bounds the progress on an object.
type space struct {
	of          string
	used, limit int
}

// checkSpace returns ErrNoSpace if the result of a call could not be stored, whatever it is.
func (p Plan) checkSpace(c Call, now time.Time) error {
	desired := sizeOf(p.New)
	for _, s := range p.spaces(desired) {
		if s.used+2*desired+reserve < s.limit {
			continue // the common case, without the edits
		}
		if err := p.checkEdits(s, c, now); err != nil {
			return err
		}
	}
	return nil
}

// checkEdits checks what is written after a failure, and after a success.
func (p Plan) checkEdits(s space, c Call, now time.Time) error {
	failed := Verdict{Err: errors.New(strings.Repeat("x", maxMessage)), Delay: time.Hour}
	for _, v := range []Verdict{failed, {Final: true}} {
		write, ok := p.Called(c, v, now).(Write)
		if !ok {
			continue
		}
		if more := p.growth(write.Edits); more > 0 && s.used+more > s.limit {
			return fmt.Errorf("%w: %s would have %d bytes of %d; make the object or its annotations smaller", ErrNoSpace, s.of,
				s.used+more, s.limit)
		}
	}
	return nil
}

// spaces returns what bounds the progress: the annotations, unless it is in the status, and the whole object if it is
// large.
func (p Plan) spaces(desired int) []space {
	free := 0
	if p.Cause == Create || p.Cause == Update {
		free = reserve
	}
	var all []space
	if p.spec.Status == nil {
		all = append(all, space{"the annotations", p.annotationBytes(), maxAnnotations - free})
	}
	if desired > maxObject/4 {
		all = append(all, space{"the object", sizeOf(p.object), maxObject - free})
	}
	return all
}

func (p Plan) annotationBytes() int {
	value, _ := lookup(p.object, Path{"metadata", "annotations"})
	all, _ := value.(map[string]any)
	size := 0
	for key, value := range all {
		text, _ := value.(string)
		size += len(key) + len(text)
	}
	return size
}

// growth returns by how many bytes edits make annotations, or the status, longer.
func (p Plan) growth(e Edits) int {
	size := 0
	for key, text := range e.Annotations {
		if before, there := annotation(p.object, key); there {
			size -= len(key) + len(before)
		}
		if text != nil {
			size += len(key) + len(*text)
		}
	}
	for name, value := range e.Fields {
		if before, there := lookup(p.object, p.spec.inStatus(name)); there {
			size -= sizeOf(name) + sizeOf(before)
		}
		if value != nil {
			size += sizeOf(name) + sizeOf(value)
		}
	}
	return size
}

func sizeOf(value any) int { return len(encodeJSON(value)) }
