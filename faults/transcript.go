package faults

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// maxEntries bounds a transcript. Counts continue beyond it.
const maxEntries = 1 << 16

// Entry is one request and its result.
type Entry struct {
	Request
	Start, End time.Duration // since the proxy started; End is 0 while it runs
	Code       int           // HTTP status; 0 if there was no answer
	Bytes      int64         // of the answer's body, as sent
	Frames     int           // of a watch, as sent
	Faults     []Injected
	Err        string // why the upstream's answer broke off by itself
}

// Injected is a fault that happened.
type Injected struct {
	Fault Fault
	At    time.Duration // since the proxy started
}

// String is one line of a transcript.
func (e Entry) String() string {
	s := fmt.Sprintf("%9.3fs %-11s %-24s #%d %s → %d, %d bytes", e.Start.Seconds(), e.Class, e.Resource, e.Number, e.URI, e.Code, e.Bytes)
	if e.Frames > 0 {
		s += fmt.Sprintf(", %d frames", e.Frames)
	}
	for _, f := range e.Faults {
		s += fmt.Sprintf("; %9.3fs %s", f.At.Seconds(), f.Fault)
	}
	if e.Err != "" {
		s += "; upstream: " + e.Err
	}
	if e.End > 0 {
		s += fmt.Sprintf("; %9.3fs end", e.End.Seconds())
	}
	return s
}

// transcript records requests. It is safe for concurrent use.
type transcript struct {
	start time.Time

	mu      sync.Mutex
	entries []*Entry
	dropped int // requests beyond maxEntries
	counts  map[countKey]int
}

type countKey struct {
	class    Class
	resource string
}

func newTranscript() *transcript {
	return &transcript{start: time.Now(), counts: make(map[countKey]int)}
}

// begin records a request, and gives it its number.
func (t *transcript) begin(req Request) *Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := countKey{req.Class, req.Resource}
	t.counts[key]++
	req.Number = t.counts[key]
	e := &Entry{Request: req, Start: time.Since(t.start)}
	if len(t.entries) < maxEntries {
		t.entries = append(t.entries, e)
	} else {
		t.dropped++
	}
	return e
}

// update changes an entry that others may be reading.
func (t *transcript) update(e *Entry, change func(e *Entry, now time.Duration)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(e, time.Since(t.start))
}

func (t *transcript) count(class Class, resource string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for key, count := range t.counts {
		if (Request{Class: key.class, Resource: key.resource}).matches(class, resource) {
			n += count
		}
	}
	return n
}

func (t *transcript) snapshot() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := make([]Entry, len(t.entries))
	for i, e := range t.entries {
		entries[i] = *e
		entries[i].Faults = slices.Clone(e.Faults)
	}
	return entries
}

func (t *transcript) writeTo(w io.Writer) {
	for _, e := range t.snapshot() {
		fmt.Fprintln(w, e)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped > 0 {
		fmt.Fprintf(w, "and %d more requests\n", t.dropped)
	}
}
