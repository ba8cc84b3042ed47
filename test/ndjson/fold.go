// Package ndjson folds the output of keepwatch watch as a consumer does.
package ndjson

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Line is one line of the stream.
type Line struct {
	Type     string
	Revision string
	ID       string
	Resource string
	From, To string
	Reason   string
	Count    int
	Object   json.RawMessage
}

// Gap is a declared gap.
type Gap struct {
	From, To uint64
	Reason   string
}

// Object is the last state of an object that the consumer has received.
type Object struct {
	UID, Revision string
	JSON          json.RawMessage
}

// Fold is the state that a consumer computes from a stream. An event whose id was seen
// before is a repetition and changes nothing. A gap with the reason rewind clears the seen
// ids: a restored source has old states again, with their old ids.
type Fold struct {
	Objects   map[string]Object // by namespace/name
	Deleted   map[string]bool   // UIDs of DELETED events
	Delivered map[string]bool   // UIDs of ADDED and MODIFIED events
	Gaps      []Gap
	First     uint64 // the revision of the first SYNCED
	Synced    int    // SYNCED lines
	Events    int    // object events, repetitions included
	Repeats   int
	// Wrong lists what no stream may contain.
	Wrong []string
	// Selected is true for a stream with a selector: an object can be deleted from it and
	// be added again.
	Selected bool

	ids map[string]bool
	// rewinding is true from a rewind to the next SYNCED: revisions may be lower.
	rewinding bool
}

// NewFold returns the state before the first line.
func NewFold() *Fold {
	return &Fold{Objects: map[string]Object{}, Deleted: map[string]bool{}, Delivered: map[string]bool{},
		ids: map[string]bool{}}
}

// Read folds lines until the input ends. It ignores a last line without a line break, which
// is what a killed process leaves.
func (f *Fold) Read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var line Line
		if err := json.Unmarshal(bytes.TrimSpace(text), &line); err != nil {
			return fmt.Errorf("line %q: %w", text, err)
		}
		f.Add(line)
	}
}

// Add folds one line.
func (f *Fold) Add(line Line) {
	switch line.Type {
	case "ADDED", "MODIFIED", "DELETED":
		f.event(line)
	case "SYNCED":
		if f.Synced++; f.Synced == 1 {
			f.First = number(line.Revision)
		}
		f.rewinding = false
		if line.Count != len(f.Objects) {
			f.wrong("SYNCED counts %d objects, the fold has %d", line.Count, len(f.Objects))
		}
	case "GAP":
		from, _ := strconv.ParseUint(line.From, 10, 64)
		to, _ := strconv.ParseUint(line.To, 10, 64)
		if line.Reason != "expired" && line.Reason != "downtime" && line.Reason != "rewind" || from == 0 || to == 0 {
			f.wrong("GAP from %q to %q, reason %q", line.From, line.To, line.Reason)
		}
		if line.Reason == "rewind" {
			f.rewinding = true
			clear(f.ids)
		}
		f.Gaps = append(f.Gaps, Gap{From: from, To: to, Reason: line.Reason})
	case "BOOKMARK":
	default:
		f.wrong("unknown type %q", line.Type)
	}
}

func (f *Fold) event(line Line) {
	f.Events++
	var o struct {
		APIVersion, Kind string
		Metadata         struct{ Namespace, Name, UID, ResourceVersion string }
	}
	if err := json.Unmarshal(line.Object, &o); err != nil {
		f.wrong("object of %s: %v", line.ID, err)
		return
	}
	m := o.Metadata
	want := m.UID + "/" + m.ResourceVersion
	if line.Type == "DELETED" {
		want += "/deleted"
	}
	if line.ID != want || o.Kind == "" || o.APIVersion == "" || line.Resource == "" {
		f.wrong("%s %s: id of an object %s, %s %s, resource %q", line.Type, line.ID, want, o.APIVersion, o.Kind,
			line.Resource)
	}
	if f.ids[line.ID] {
		f.Repeats++
		return
	}
	f.ids[line.ID] = true
	f.apply(line, m.Namespace+"/"+m.Name, Object{UID: m.UID, Revision: m.ResourceVersion, JSON: line.Object})
}

func (f *Fold) apply(line Line, key string, now Object) {
	prior, known := f.Objects[key]
	if known && prior.UID == now.UID && line.Type != "DELETED" && !f.rewinding &&
		number(now.Revision) < number(prior.Revision) {
		f.wrong("%s goes back from %s to %s", key, prior.Revision, now.Revision)
	}
	if known && prior.UID != now.UID {
		f.wrong("%s %s has UID %s, but %s was not deleted", line.Type, key, now.UID, prior.UID)
	}
	if f.Deleted[now.UID] && line.Type != "DELETED" && !f.Selected && !f.rewinding {
		f.wrong("%s %s shows the deleted %s", line.Type, key, now.UID)
	}
	if line.Type == "DELETED" {
		f.Deleted[now.UID] = true
		delete(f.Objects, key)
		return
	}
	if f.rewinding {
		delete(f.Deleted, now.UID)
	}
	f.Delivered[now.UID] = true
	f.Objects[key] = now
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

func (f *Fold) wrong(format string, args ...any) {
	if len(f.Wrong) < 20 {
		f.Wrong = append(f.Wrong, fmt.Sprintf(format, args...))
	}
}

// Summary returns the counts in one line.
func (f *Fold) Summary() string {
	reasons := map[string]int{}
	for _, g := range f.Gaps {
		reasons[g.Reason]++
	}
	return strings.TrimSpace(fmt.Sprintf("%d events (%d repeated), %d objects, %d deleted, %d SYNCED, gaps %v",
		f.Events, f.Repeats, len(f.Objects), len(f.Deleted), f.Synced, reasons))
}
