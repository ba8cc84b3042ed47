package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
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

// addDeadLetter appends a dead letter to the file, and syncs it. The file may end in the middle of a line after a crash of the
// machine.
func (r *Receiver) addDeadLetter(e event.Event, a answer) error {
	if r.refusals++; r.refusals > maxDead {
		return fmt.Errorf("%s has refused %d events one after the other, the last one with %v: they are in %s", r, r.refusals-1, a, r.options.DeadLetters)
	}
	line, err := json.Marshal(deadLetter{time.Now().UTC(), a.status, a.text, e})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.options.DeadLetters, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	r.options.Report(fmt.Errorf("%s refuses event %s with %v: it is in %s", r, e.ID(), a, r.options.DeadLetters), 0)
	return nil
}
