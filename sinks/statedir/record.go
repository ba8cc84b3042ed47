package statedir

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/keepwatch/keepwatch/internal/durable"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	recordName = "sync.json"
	// format is the version of the record and the directory.
	format = 1
)

// record is the content of sync.json. The progress in it is for people: the one that counts is in the states.
type record struct {
	Format int `json:"format"`
	// State identifies the directory.
	State string `json:"state"`
	// Receiver is the name of the receiver that the directory belongs to.
	Receiver string `json:"receiver"`
	// Streams has every stream that was ever delivered, by resource and namespace.
	Streams []sink.Status `json:"streams"`
}

func newRecord(r sink.Receiver) *record {
	return &record{Format: format, State: rand.Text(), Receiver: r.String()}
}

// readRecord returns the record in dir, or an error, os.ErrNotExist if there is none.
func readRecord(dir string) (*record, error) {
	path := filepath.Join(dir, recordName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf(
			"%s is damaged: %w; restore the directory from a backup, or delete it to deliver everything anew", path, err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("%s has format %d, and this keepwatch reads format %d", path, r.Format, format)
	}
	return r, nil
}

func (r *record) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, recordName), append(text, '\n'))
}

// enter marks the streams as the active ones, and returns their indexes. It returns an error for streams of another
// cluster, and for those whose objects were delivered in part by others, of another choice of namespaces.
func (r *record) enter(streams []sink.Stream) (active []int, err error) {
	var stored []*stream.Identity
	for i := range r.Streams {
		r.Streams[i].Active = false
		stored = append(stored, &r.Streams[i].ID)
	}
	if err := sink.EnterCluster(stored, streams); err != nil {
		return nil, fmt.Errorf("%w; %s", err, useAnother)
	}
	for _, wanted := range streams {
		if !slices.ContainsFunc(r.Streams, isOf(wanted)) {
			if slices.ContainsFunc(r.Streams, overlaps(wanted)) {
				return nil, fmt.Errorf("%s: %w", wanted.ID.Resource, errOverlap)
			}
			r.Streams = append(r.Streams, sink.Status{ID: wanted.ID})
		}
	}
	slices.SortFunc(r.Streams, func(a, b sink.Status) int {
		return cmp.Or(cmp.Compare(a.ID.Resource, b.ID.Resource), cmp.Compare(a.ID.Namespace, b.ID.Namespace))
	})
	for _, wanted := range streams {
		i := slices.IndexFunc(r.Streams, isOf(wanted))
		r.Streams[i].Active, r.Streams[i].Line = true, wanted.Line
		active = append(active, i)
	}
	return active, nil
}

var errOverlap = errors.New("it has these objects already, of another choice of namespaces; " + useAnother)

const useAnother = "use another directory, or delete this one to deliver everything anew"

func isOf(wanted sink.Stream) func(sink.Status) bool {
	return func(s sink.Status) bool {
		return s.ID.Resource == wanted.ID.Resource && s.ID.Namespace == wanted.ID.Namespace
	}
}

// overlaps reports whether a stream of another choice of namespaces has the same objects.
func overlaps(wanted sink.Stream) func(sink.Status) bool {
	return func(s sink.Status) bool {
		return s.ID.Resource == wanted.ID.Resource && (s.ID.Namespace == "" || wanted.ID.Namespace == "")
	}
}
