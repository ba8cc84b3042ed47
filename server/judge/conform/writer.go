package conform

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch"
)

// namesPerWriter is the number of names that a writer changes.
const namesPerWriter = 6

var colors = []string{"red", "green", "blue"}

// writer changes the objects of its own names at random. It knows the state of each of them.
type writer struct {
	*subject
	index   int
	random  *rand.Rand
	history *history
	current map[string]*object     // by the name without the prefix; absent: deleted, or not created
	doubts  map[keepwatch.UID]bool // objects whose deletion was tried with an unknown outcome
	left    *atomic.Int64          // the writes that all writers have left
}

// name returns one of the writer's names.
func (w *writer) name(i int) string { return fmt.Sprintf("w%02d-%d", w.index, i) }

// run writes until no writes are left or ctx is done. While the server cannot be reached it tries again.
func (w *writer) run(ctx context.Context) error {
	for ctx.Err() == nil && w.left.Add(-1) >= 0 {
		name := w.name(w.random.IntN(namesPerWriter))
		if err := w.one(ctx, name); err != nil {
			if _, refused := errors.AsType[*refusedWrite](err); refused {
				return err
			}
			if err := w.find(ctx, name); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// one does one write of a name. If the outcome is not the expected one, it is an error.
func (w *writer) one(ctx context.Context, name string) error {
	known, color := w.current[name], map[string]string{"color": colors[w.random.IntN(len(colors))]}
	value := fmt.Sprint(w.random.Uint32())
	switch {
	case known == nil:
		o, err := w.create(ctx, name, color, value)
		return w.outcome(ctx, name, o, err)
	case w.random.IntN(4) == 0:
		err := w.remove(ctx, known, "resourceVersion", known.revision.String())
		if err == nil {
			w.history.removed(known)
			delete(w.current, name)
		} else {
			w.doubts[known.uid] = true
		}
		return w.outcome(ctx, name, nil, err)
	case w.random.IntN(2) == 0:
		color = known.labels
	}
	o, err := w.update(ctx, known, color, value)
	return w.outcome(ctx, name, o, err)
}

// outcome records the state after a write. A refusal that another write of the same name explains, one
// that was repeated after a lost answer, is not an error: the state is read.
func (w *writer) outcome(ctx context.Context, name string, o *object, err error) error {
	if o != nil {
		w.history.wrote(o)
		w.current[name] = o
	}
	refused, ok := errors.AsType[*refusedWrite](err)
	if !ok {
		return err
	}
	switch code := refused.answer.code; {
	case code == http.StatusConflict, code == http.StatusNotFound, code >= http.StatusInternalServerError,
		code == http.StatusTooManyRequests:
		return w.find(ctx, name)
	}
	return err
}

// find reads the state of a name after a write whose outcome is unknown. A write that is still under
// way and commits later makes the next one fail, since each has the last known revision. A server that cannot
// be reached for the time waits.recovery is an error.
func (w *writer) find(ctx context.Context, name string) error {
	for deadline := time.Now().Add(w.waits.recovery); ; {
		o, a, err := w.get(ctx, w.prefix+name, nil)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && o != nil:
			w.history.wrote(o)
			w.current[name] = o
			return nil
		case err == nil && a.code == http.StatusNotFound:
			if known := w.current[name]; known != nil {
				if w.doubts[known.uid] {
					w.history.removed(known)
				} else {
					w.history.vanished(known)
				}
				delete(w.current, name)
			}
			return nil
		case err == nil && (a.code < http.StatusInternalServerError || time.Now().After(deadline)):
			return w.unexpected("getting "+name+" of", a)
		case time.Now().After(deadline):
			return fmt.Errorf("the server cannot be reached for %v: %w", w.waits.recovery, err)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// confirm reads the state of each name once more: a write that is undone need not have a later one that fails.
func (w *writer) confirm(ctx context.Context) error {
	for i := range namesPerWriter {
		if err := w.find(ctx, w.name(i)); err != nil {
			return err
		}
	}
	return nil
}

// last makes the writer's first name red and its second one green, so that every view has a last event of them, and
// returns their states. A server that refuses that for the time waits.recovery is an error.
func (w *writer) last(ctx context.Context) ([]*object, error) {
	var all []*object
	for i, color := range []string{"red", "green"} {
		o, err := w.become(ctx, w.name(i), map[string]string{"color": color}, "last")
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// become gives a name labels and a value, and returns its state.
func (w *writer) become(ctx context.Context, name string, labels map[string]string, value string) (*object, error) {
	for deadline := time.Now().Add(w.waits.recovery); ; {
		var o *object
		var err error
		if known := w.current[name]; known == nil {
			o, err = w.create(ctx, name, labels, value)
		} else {
			o, err = w.update(ctx, known, labels, value)
		}
		if err != nil && time.Now().After(deadline) {
			return nil, err
		}
		if err := w.outcome(ctx, name, o, err); err != nil {
			if _, refused := errors.AsType[*refusedWrite](err); refused {
				return nil, err
			}
			if err := w.find(ctx, name); err != nil {
				return nil, err
			}
		}
		if o != nil || w.valueOf(name) == value {
			return w.current[name], nil
		}
	}
}

func (w *writer) valueOf(name string) string {
	if o := w.current[name]; o != nil {
		return o.value
	}
	return ""
}
