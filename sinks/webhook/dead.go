package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/keepwatch/keepwatch/internal/durable"
)

// maxDead is how many events may become dead letters one after the other.
const maxDead = 100

// deadLetter is a line of the file of dead letters.
type deadLetter struct {
	Time   time.Time   `json:"time"`
	Status int         `json:"status"`
	Answer string      `json:"answer"` // the beginning of the body
	Event  event.Event `json:"event"`
}

// addDeadLetter appends a dead letter to the file, and syncs it. After a crash of the machine, or a full disk, the file
// may have a part of a line, which stays a line of its own.
func (r *Receiver) addDeadLetter(e event.Event, a answer) error {
	if r.refusals >= maxDead {
		return fmt.Errorf("%s has refused %d events one after the other, and this one with %v: they are in %s; "+
			"sync continues when the receiver accepts this event, or when that file is moved away", r, r.refusals, a,
			r.options.DeadLetters)
	}
	line, err := json.Marshal(deadLetter{time.Now().UTC(), a.status, a.text, e})
	if err != nil {
		return err
	}
	// The number is first: a crash must not leave a letter that is not counted.
	if err := durable.WriteFile(r.runPath(), []byte(strconv.Itoa(r.refusals+1)+"\n")); err != nil {
		return err
	}
	if err := appendLine(r.options.DeadLetters, line); err != nil {
		return err
	}
	r.refusals++
	r.options.Refused(fmt.Errorf("%s: it is in %s", r.reason(e, a), r.options.DeadLetters))
	return nil
}

// runPath is the path of the file with the number of refusals. Without it, a process that is started again and again
// would make dead letters of all events while the receiver refuses everything.
func (r *Receiver) runPath() string { return r.options.DeadLetters + ".run" }

// loadRefusals reads the number of refusals of the process before. It is zero if the dead letters were moved away.
func (r *Receiver) loadRefusals() error {
	r.refusals = 0
	text, err := os.ReadFile(r.runPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if _, err := os.Stat(r.options.DeadLetters); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if r.refusals, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return fmt.Errorf("%s is damaged: %w; delete it", r.runPath(), err)
	}
	return nil
}

// accepted ends the row of refusals.
func (r *Receiver) accepted() error {
	if r.refusals == 0 {
		return nil
	}
	r.refusals = 0
	if err := os.Remove(r.runPath()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// reason says why an event is a dead letter. It names the object.
func (r *Receiver) reason(e event.Event, a answer) string {
	name := e.ID()
	if e.Subject() != "" {
		name += fmt.Sprintf(" of %.200q", e.Subject())
	}
	if a.status == unsendable {
		return fmt.Sprintf("%s: event %s cannot be sent: %v", r, name, a)
	}
	return fmt.Sprintf("%s refuses event %s with %v", r, name, a)
}

// appendLine appends a line to a file, and syncs it. If the file ends in the middle of a line, that line is ended
// first.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(writeLine(f, line), f.Close(), durable.SyncDir(filepath.Dir(path)))
}

func writeLine(f *os.File, line []byte) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}
