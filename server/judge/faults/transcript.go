package faults

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// maxEntries bounds a transcript in memory. Counts and records continue beyond it.
const maxEntries = 1 << 16

// Entry is one request and its result.
type Entry struct {
	Request
	Start  time.Duration `json:"startNanoseconds"`         // since the proxy started
	End    time.Duration `json:"endNanoseconds,omitempty"` // 0 while the request runs
	Code   int           `json:"code"`                     // HTTP status; 0 if there was no answer
	Bytes  int64         `json:"bytes"`                    // of the answer's body, as sent
	Frames int           `json:"frames,omitempty"`         // of a watch, as sent
	Faults []Injected    `json:"faults,omitempty"`
	Err    string        `json:"err,omitempty"` // why the upstream's answer broke off by itself
}

// Injected is a fault that happened.
type Injected struct {
	Fault string        `json:"fault"`           // such as "cut" or "status 410 Expired"
	After string        `json:"after,omitempty"` // such as " after 3 events"
	At    time.Duration `json:"atNanoseconds"`   // since the proxy started
}

// String is one line of a transcript.
func (e Entry) String() string {
	s := fmt.Sprintf("%9.3fs %-11s %-24s #%d %s → %d, %d bytes", e.Start.Seconds(), e.Class, e.Resource, e.Number, e.URI,
		e.Code, e.Bytes)
	if e.Frames > 0 {
		s += fmt.Sprintf(", %d frames", e.Frames)
	}
	for _, f := range e.Faults {
		s += fmt.Sprintf("; %9.3fs %s%s", f.At.Seconds(), f.Fault, f.After)
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
	start  time.Time
	record *recorder // or nil

	mu      sync.Mutex
	entries []*Entry
	dropped int // requests beyond maxEntries
	counts  map[countKey]int
	notes   []string
}

type countKey struct {
	class    Class
	resource string
}

// otherResources stands for the resources beyond maxCounters.
const otherResources = "…"

func newTranscript(record *recorder) *transcript {
	return &transcript{start: time.Now(), record: record, counts: make(map[countKey]int)}
}

// begin records a request, and gives it its number.
func (t *transcript) begin(req Request) *Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := countKey{req.Class, req.Resource}
	if _, known := t.counts[key]; !known && len(t.counts) >= maxCounters { // clients choose the names
		key.resource = otherResources
	}
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

// end records the end of a request.
func (t *transcript) end(e *Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.End = time.Since(t.start)
	if t.record != nil {
		t.record.write(e)
	}
}

// note adds a line for people.
func (t *transcript) note(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.notes) < maxInjected {
		t.notes = append(t.notes, line)
	}
}

// close ends the record, after all requests ended.
func (t *transcript) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var problems []error
	for _, note := range t.notes {
		problems = append(problems, errors.New(note))
	}
	t.notes = nil
	if t.record != nil {
		problems = append(problems, t.record.close())
	}
	return errors.Join(problems...)
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
