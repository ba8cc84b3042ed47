package statedir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/keepwatch/keepwatch/internal/durable"
	"github.com/keepwatch/keepwatch/internal/filelock"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var (
	_ sink.Sink   = (*Sink)(nil)
	_ sink.Reader = (*Sink)(nil)
)

// Sink delivers to a receiver, and stores the positions of the streams in a directory.
type Sink struct {
	dir      string
	receiver sink.Receiver

	state  string // that of the record, when the directory was opened first
	lock   io.Closer
	states []stream.State
	record *record
	active []int     // the index in record.Streams of each stream
	saved  time.Time // when record was written
}

// New returns the sink of a receiver, with its state in dir. It opens nothing.
func New(dir string, receiver sink.Receiver) *Sink { return &Sink{dir: dir, receiver: receiver} }

// Open opens or creates the directory, and then the receiver. It returns an error for a directory that
// belongs to another receiver or to other streams, that another process has opened, and that is damaged. See
// [sink.Sink].
func (s *Sink) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	if s.lock != nil {
		return nil, errors.New("the sink is open")
	}
	stored, err := s.open(ctx, streams)
	if err != nil {
		s.record = nil // nothing was delivered: to write it once more would say the same error twice
		return nil, errors.Join(s.failure(err), s.Close())
	}
	return stored, nil
}

func (s *Sink) open(ctx context.Context, streams []sink.Stream) (stored []sink.Stored, err error) {
	if err := durable.MkdirAll(s.dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s.lock, err = filelock.TryLock(filepath.Join(s.dir, "lock"))
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, fmt.Errorf("state directory %s is in use by another keepwatch", s.dir)
	case err != nil:
		return nil, err
	}
	if s.record, err = s.enter(streams); err != nil {
		return nil, err
	}
	s.state = s.record.State
	delivered := sink.Delivered{State: s.record.State}
	for i, wanted := range streams {
		found, err := s.openState(wanted.ID, s.record.Streams[s.active[i]].Progress)
		if err != nil {
			return nil, err
		}
		found.Time = s.record.Streams[s.active[i]].Time
		stored = append(stored, found)
		delivered.Progress = append(delivered.Progress, found.Progress)
		delivered.Objects += found.Count()
	}
	s.update(stored)
	if err := s.save(); err != nil {
		return nil, err
	}
	return stored, s.receiver.Open(ctx, streams, delivered)
}

// enter reads the record and enters the streams. The record is on disk before the first state.
func (s *Sink) enter(streams []sink.Stream) (*record, error) {
	r, err := readRecord(s.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if r = newRecord(s.receiver); stream.Exists(s.dir) {
			r.Receiver = alone
		}
	case err != nil:
		return nil, err
	}
	if r.Receiver != s.receiver.String() {
		return nil, fmt.Errorf("state directory %s belongs to %s, not to %s; %s", s.dir, r.Receiver, s.receiver, useAnother)
	}
	if s.state != "" && r.State != s.state {
		return nil, fmt.Errorf("state directory %s was deleted or replaced while it was in use", s.dir)
	}
	if s.active, err = r.enter(streams); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", s.dir, err)
	}
	if err := s.moveAlone(streams); err != nil {
		return nil, err
	}
	return r, r.write(s.dir)
}

// alone is the receiver whose single stream had the directory for itself before v0.1.0.
const alone = "keepwatch watch"

// moveAlone moves the state of a stream that had the directory for itself. It returns an error, and changes nothing, if
// that is none of the streams.
func (s *Sink) moveAlone(streams []sink.Stream) (first error) {
	if !stream.Exists(s.dir) {
		return nil
	}
	for _, wanted := range streams {
		err := stream.Move(s.dir, streamDir(s.dir, wanted.ID), wanted.ID)
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// openState opens or makes the state of a stream. It returns an error if there is none, and the record shows that a
// list was delivered.
func (s *Sink) openState(id stream.Identity, recorded sink.Progress) (stored sink.Stored, err error) {
	dir := streamDir(s.dir, id)
	if recorded.Started() && !stream.Exists(dir) {
		return stored, fmt.Errorf("state directory %s has lost the state of %s, which was delivered up to revision %d: "+
			"restore %s from a backup, or delete the whole directory to deliver everything anew", s.dir, id.Resource,
			recorded.Cursor, dir)
	}
	state, err := stream.Open(dir, id)
	if err != nil {
		return stored, err
	}
	s.states = append(s.states, state)
	stored.State = state
	if note, _ := stream.Committed(state); note != "" {
		err = json.Unmarshal([]byte(note), &stored.Progress)
	}
	return stored, err
}

// maxName is the number of bytes of the longest name that file systems accept, and hashed of the hexadecimal digits at
// the end of one that was too long.
const maxName, hashed = 255, 32

// streamDir returns the directory of a stream.
func streamDir(dir string, id stream.Identity) string {
	name := id.Resource
	if id.Namespace != "" {
		name += "_" + id.Namespace // neither a resource nor a namespace has an underscore
	}
	if len(name) > maxName {
		name = fmt.Sprintf("%s__%x", name[:maxName-2-hashed], sha256.Sum256([]byte(name)))[:maxName]
	}
	return filepath.Join(dir, name)
}

// update sets the status of the streams to what is stored.
func (s *Sink) update(stored []sink.Stored) {
	for i := range stored {
		status := &s.record.Streams[s.active[i]]
		status.Progress, status.Count = stored[i].Progress, stored[i].Count()
	}
}

// saveEvery is how often the status is written while batches are.
const saveEvery = time.Second

// Write delivers a batch to the receiver. The streams commit it afterwards. See [sink.Sink].
func (s *Sink) Write(ctx context.Context, batch sink.Batch) error {
	if err := s.receiver.Write(ctx, batch); err != nil {
		return err
	}
	for _, p := range batch.Pieces {
		status := &s.record.Streams[s.active[p.Stream]]
		status.Progress, status.Count, status.Time = p.After, p.Count, batch.Time
	}
	if time.Since(s.saved) < saveEvery {
		return nil
	}
	return s.failure(s.save())
}

func (s *Sink) save() error {
	s.saved = time.Now()
	return s.record.write(s.dir)
}

// Close closes the receiver and the states.
func (s *Sink) Close() error {
	errs := []error{s.receiver.Close()}
	for _, state := range s.states {
		errs = append(errs, state.Close())
	}
	if s.record != nil && errors.Join(errs...) == nil {
		errs = append(errs, s.save())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	s.lock, s.states, s.record = nil, nil, nil
	return errors.Join(errs...)
}

// Status reads the status that the last process has written, at most a second after its batches. See
// [sink.Reader].
func (s *Sink) Status(context.Context) ([]sink.Status, error) {
	r, err := readRecord(s.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("state directory %s: no sync has written to it", s.dir)
	case err != nil:
		return nil, err
	}
	return r.Streams, nil
}

// OpenIndex opens the index of the stream id in the state directory dir. See [stream.OpenIndex].
func OpenIndex(dir string, id stream.Identity) (*stream.Index, error) {
	index, err := stream.OpenIndex(streamDir(dir, id), id)
	if errors.Is(err, os.ErrNotExist) {
		index, err = stream.OpenIndex(dir, id) // that of a stream which had the directory for itself
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("state directory %s has no state of %s", dir, id)
	}
	return index, err
}

// failure makes an error that another attempt may not meet a [sink.Unavailable].
func (s *Sink) failure(err error) error {
	if sink.DiskFull(err) {
		return sink.Unavailablef("state directory %s: %w", s.dir, err)
	}
	return err
}
