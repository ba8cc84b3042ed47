package differential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// Difference is one thing in which two answers differ.
type Difference struct {
	// Where is the location: the status, a header, a path in the body, the events. Equal
	// locations of different requests have equal texts.
	Where        string
	Theirs, Ours string
}

// Compare returns the differences between theirs and ours: every location once, and of
// events the first difference.
func (c *Comparison) Compare(r Request, theirs, ours Answer) []Difference {
	theirs, ours = c.maskAnswer(r, theirs), c.maskAnswer(r, ours)
	var all []Difference
	differ := func(where, theirs, ours string) {
		if theirs != ours {
			all = append(all, Difference{where, theirs, ours})
		}
	}
	if theirs.Status != ours.Status {
		where := fmt.Sprintf("status %d, ours %d", theirs.Status, ours.Status)
		return []Difference{{where, head(theirs), head(ours)}} // all else follows from it
	}
	names := maps.Clone(theirs.Header)
	maps.Copy(names, ours.Header)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		differ("header "+name, strings.Join(theirs.Header[name], "; "), strings.Join(ours.Header[name], "; "))
	}
	differ("end", theirs.Incomplete, ours.Incomplete)
	if theirs.Streamed && ours.Streamed {
		return append(all, compareEvents(theirs, ours)...)
	}
	return append(all, compareBodies(mediaType(theirs.Header), theirs.Body, ours.Body)...)
}

// head is an answer for people.
func head(a Answer) string {
	const enough = 400
	if a.Incomplete != "" {
		return "broken: " + a.Incomplete
	}
	if a.Streamed {
		return names(a.Events)
	}
	return string(a.Body[:min(len(a.Body), enough)])
}

// missing and surplus are the differences of streams of which one is a beginning of the
// other.
const (
	missing = "events: ours ends before "
	surplus = "events: theirs ends before "
)

// compareEvents returns the first event that differs, and whether the rest has the same
// events in another order.
func compareEvents(theirs, ours Answer) []Difference {
	media := mediaType(theirs.Header)
	for i := range min(len(theirs.Events), len(ours.Events)) {
		t, o := theirs.Events[i], ours.Events[i]
		if bytes.Equal(t.Frame, o.Frame) {
			continue
		}
		if sameFrames(theirs.Events, ours.Events) {
			return []Difference{{"events: order", names(theirs.Events), names(ours.Events)}}
		}
		if t.Type != o.Type {
			return []Difference{{"events: " + string(t.Type) + " or " + string(o.Type), names(theirs.Events[i:]),
				names(ours.Events[i:])}}
		}
		all := compareBodies(media, t.Object, o.Object)
		for i := range all {
			all[i].Where = "events: " + string(t.Type) + " " + all[i].Where
		}
		return all
	}
	switch shared := min(len(theirs.Events), len(ours.Events)); {
	case len(theirs.Events) > shared:
		return []Difference{{missing + string(theirs.Events[shared].Type), names(theirs.Events[shared:]), ""}}
	case len(ours.Events) > shared:
		return []Difference{{surplus + string(ours.Events[shared].Type), "", names(ours.Events[shared:])}}
	}
	return nil
}

func sameFrames(a, b []Event) bool {
	frames := func(events []Event) []string {
		var all []string
		for _, e := range events {
			all = append(all, string(e.Frame))
		}
		sort.Strings(all)
		return all
	}
	return slices.Equal(frames(a), frames(b))
}

// names is events for people.
func names(events []Event) string {
	var b strings.Builder
	for i, e := range events {
		if i == 12 {
			fmt.Fprintf(&b, "and %d more", len(events)-i)
			break
		}
		fmt.Fprintf(&b, "%s %s; ", e.Type, subject(e.Object))
	}
	return b.String()
}

// subject identifies an encoded object: its key and revision, or the message of a status.
func subject(object []byte) string {
	var o struct {
		Message  string
		Metadata struct{ Namespace, Name, ResourceVersion string }
	}
	if json.Unmarshal(readable("", object), &o) != nil {
		return fmt.Sprintf("%d bytes", len(object))
	}
	if o.Message != "" {
		return o.Message
	}
	return fmt.Sprintf("%s/%s@%s", o.Metadata.Namespace, o.Metadata.Name, o.Metadata.ResourceVersion)
}

// compareBodies finds where two bodies differ.
func compareBodies(media string, theirs, ours []byte) []Difference {
	if bytes.Equal(theirs, ours) {
		return nil
	}
	at := prefix(theirs, ours)
	var t, o any
	if json.Unmarshal(readable(media, theirs), &t) != nil || json.Unmarshal(readable(media, ours), &o) != nil {
		return []Difference{{"bytes", excerptAt(theirs, at), excerptAt(ours, at)}}
	}
	if all := differencesIn(nil, "", t, o); len(all) > 0 {
		return all
	}
	return []Difference{{"bytes of an equal value", excerptAt(theirs, at), excerptAt(ours, at)}}
}

// prefix is how many bytes two bodies have in common.
func prefix(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func excerptAt(b []byte, at int) string {
	return fmt.Sprintf("…%q… (%d of %d)", b[max(0, min(at, len(b))-40):min(len(b), at+80)], at, len(b))
}

func excerpt(v any) string {
	text, _ := json.Marshal(v)
	if len(text) > 600 {
		text = append(text[:600], "…"...)
	}
	return string(text)
}

// differencesIn adds the differences between two JSON values. The location has no index of
// an item: equal causes have equal locations, and each is reported once.
func differencesIn(all []Difference, path string, theirs, ours any) []Difference {
	switch t := theirs.(type) {
	case map[string]any:
		if o, ok := ours.(map[string]any); ok {
			return differencesInFields(all, path, t, o)
		}
	case []any:
		if o, ok := ours.([]any); ok {
			for i := range min(len(t), len(o)) {
				all = differencesIn(all, path+"[]", t[i], o[i])
			}
			if len(t) != len(o) {
				all = addDifference(all, path+" (length)", len(t), len(o))
			}
			return all
		}
	default:
		if theirs == ours {
			return all
		}
	}
	return addDifference(all, path, theirs, ours)
}

func differencesInFields(all []Difference, path string, theirs, ours map[string]any) []Difference {
	both := maps.Clone(theirs)
	maps.Copy(both, ours)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		t, inTheirs := theirs[name]
		o, inOurs := ours[name]
		if inTheirs == inOurs {
			all = differencesIn(all, path+"."+name, t, o)
		} else {
			all = addDifference(all, path+"."+name, t, o)
		}
	}
	return all
}

func addDifference(all []Difference, path string, theirs, ours any) []Difference {
	where := "body " + path
	if slices.ContainsFunc(all, func(d Difference) bool { return d.Where == where }) {
		return all
	}
	return append(all, Difference{where, excerpt(theirs), excerpt(ours)})
}
