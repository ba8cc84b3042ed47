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

	"github.com/keepwatch/keepwatch/readpath"
)

// mostAsked bounds how much is remembered of what was asked for.
const mostAsked = 256

// askedFor is an encoding of a resource that a large list was asked for in.
type askedFor struct {
	schema.GroupVersionResource `json:",inline"`
	Encoding                    readpath.ListEncoding `json:"encoding"`
}

// asked remembers what large lists were asked for, over a restart of the server, too: then it is
// encoded in the background, one after another, and the first who asks again need not wait for
// that. It is safe for concurrent use.
type asked struct {
	changed chan struct{} // has an element when all was changed
	opened  chan struct{} // has an element when readers were added

	mu      sync.Mutex
	all     []askedFor // the newest first
	readers map[schema.GroupVersionResource]*readpath.Reader
	waiting []askedFor // to be encoded, once there is a reader
}

func newAsked() *asked {
	return &asked{changed: make(chan struct{}, 1), opened: make(chan struct{}, 1), readers: map[schema.GroupVersionResource]*readpath.Reader{}}
}

// of is what a resource's reader calls for each encoding.
func (a *asked) of(resource schema.GroupVersionResource) func(readpath.ListEncoding) {
	return func(e readpath.ListEncoding) {
		a.mu.Lock()
		defer a.mu.Unlock()
		one := askedFor{resource, e}
		a.all = slices.DeleteFunc(a.all, func(other askedFor) bool { return other == one })
		a.all = slices.Insert(a.all[:min(len(a.all), mostAsked-1)], 0, one)
		signal(a.changed)
	}
}

// add says who encodes a resource from now on.
func (a *asked) add(resource schema.GroupVersionResource, reader *readpath.Reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readers[resource] = reader
	signal(a.opened)
}

// remove takes back what add has said.
func (a *asked) remove(resource schema.GroupVersionResource, reader *readpath.Reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readers[resource] == reader {
		delete(a.readers, resource)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run encodes what the file says that was asked for before, and keeps it, until ctx is done. Without
// a path nothing is kept. A file that can't be read or written costs a first list some time, and is
// only said.
func (a *asked) run(ctx context.Context, path string) {
	if path == "" {
		return
	}
	if err := a.load(path); err != nil {
		klog.InfoS("What was asked for before the start is not known", "err", err)
	}
	var warming sync.WaitGroup
	defer warming.Wait()
	warming.Go(func() { a.warm(ctx) })
	for {
		select {
		case <-a.changed:
			if err := a.save(path); err != nil {
				klog.InfoS("What was asked for can't be kept for the next start", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (a *asked) load(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var before []askedFor
	if err := json.Unmarshal(text, &before); err != nil {
		return err
	}
	before = before[:min(len(before), mostAsked)]
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range before {
		if len(a.all) < mostAsked && !slices.Contains(a.all, one) {
			a.all = append(a.all, one)
		}
	}
	a.waiting = before
	return nil
}

func (a *asked) save(path string) error {
	a.mu.Lock()
	text, err := json.Marshal(a.all)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	return writeFile(path, text)
}

// warm encodes what waits, as its readers are there.
func (a *asked) warm(ctx context.Context) {
	for ctx.Err() == nil {
		reader, encoding := a.next()
		if reader != nil {
			select {
			case <-reader.Cache.Warmed(): // it is decoded first, as carefully
				reader.Warm(ctx, encoding)
			case <-reader.Cache.Ended():
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-a.opened:
		case <-ctx.Done():
		}
	}
}

// next takes the first of what waits that has a reader; there may be none.
func (a *asked) next() (*readpath.Reader, readpath.ListEncoding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, one := range a.waiting {
		if reader := a.readers[one.GroupVersionResource]; reader != nil {
			a.waiting = slices.Delete(slices.Clone(a.waiting), i, i+1)
			return reader, one.Encoding
		}
	}
	return nil, ""
}
