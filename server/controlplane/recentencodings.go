package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/privatefile"
	"github.com/keepwatch/keepwatch/server/readpath"
)

// recentEncodingsFile is the file of recentEncodings in the data folder.
const recentEncodingsFile = "recent-encodings.json"

// maxRecentEncodings bounds the length of recentEncodings.
const maxRecentEncodings = 256

// resourceEncoding is an encoding in which a client requested a large list of a resource.
type resourceEncoding struct {
	schema.GroupVersionResource `json:",inline"`
	Encoding                    readpath.ListEncoding `json:"encoding"`
}

// recentEncodings records the encodings in which clients requested large lists, in a file that
// outlives a restart. After the restart it encodes them in the background, one after another, so that
// the first client does not wait for that. It is safe for concurrent use.
type recentEncodings struct {
	changed     chan struct{} // has an element after a change of recent
	readerAdded chan struct{} // has an element after AddReader

	mu      sync.Mutex
	recent  []resourceEncoding // the newest first
	readers map[schema.GroupVersionResource]*readpath.Reader
	pending []resourceEncoding // to be encoded, once there is a reader
}

func newRecentEncodings() *recentEncodings {
	return &recentEncodings{
		changed: make(chan struct{}, 1), readerAdded: make(chan struct{}, 1),
		readers: map[schema.GroupVersionResource]*readpath.Reader{},
	}
}

// Recorder returns the function that a resource's reader calls for each encoding.
func (r *recentEncodings) Recorder(resource schema.GroupVersionResource) func(readpath.ListEncoding) {
	return func(e readpath.ListEncoding) {
		r.mu.Lock()
		defer r.mu.Unlock()
		newest := resourceEncoding{resource, e}
		r.recent = slices.DeleteFunc(r.recent, func(other resourceEncoding) bool { return other == newest })
		r.recent = slices.Insert(r.recent[:min(len(r.recent), maxRecentEncodings-1)], 0, newest)
		signal(r.changed)
	}
}

// AddReader sets the reader that encodes a resource from now on.
func (r *recentEncodings) AddReader(resource schema.GroupVersionResource, reader *readpath.Reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers[resource] = reader
	signal(r.readerAdded)
}

// RemoveReader undoes AddReader.
func (r *recentEncodings) RemoveReader(resource schema.GroupVersionResource, reader *readpath.Reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers[resource] == reader {
		delete(r.readers, resource)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run encodes the lists in the file, and writes each change to the file, until ctx is done. If the
// file can't be read or written, the first lists after a start are slower; the error is only logged.
func (r *recentEncodings) run(ctx context.Context, path string) {
	if err := r.load(path); err != nil {
		klog.InfoS("The encodings of large lists before the start are unknown", "err", err)
	}
	var warming sync.WaitGroup
	defer warming.Wait()
	warming.Go(func() { r.warm(ctx) })
	for {
		select {
		case <-r.changed:
			if err := r.save(path); err != nil {
				klog.InfoS("The encodings of large lists can't be stored for the next start", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (r *recentEncodings) load(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var before []resourceEncoding
	if err := json.Unmarshal(text, &before); err != nil {
		return err
	}
	before = before[:min(len(before), maxRecentEncodings)]
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range before {
		if len(r.recent) < maxRecentEncodings && !slices.Contains(r.recent, e) {
			r.recent = append(r.recent, e)
		}
	}
	r.pending = before
	return nil
}

func (r *recentEncodings) save(path string) error {
	r.mu.Lock()
	text, err := json.Marshal(r.recent)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return privatefile.Write(path, text)
}

// warm encodes the pending lists as their readers are added.
func (r *recentEncodings) warm(ctx context.Context) {
	for ctx.Err() == nil {
		reader, encoding := r.next()
		if reader != nil {
			select {
			case <-reader.Cache().Warmed(): // the cache decodes its objects first, in the background too
				reader.Warm(ctx, encoding)
			case <-reader.Cache().Ended():
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-r.readerAdded:
		case <-ctx.Done():
		}
	}
}

// next removes the first pending list that has a reader, and returns both; nil if there is none.
func (r *recentEncodings) next() (*readpath.Reader, readpath.ListEncoding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range r.pending {
		if reader := r.readers[e.GroupVersionResource]; reader != nil {
			r.pending = slices.Delete(slices.Clone(r.pending), i, i+1)
			return reader, e.Encoding
		}
	}
	return nil, ""
}
