package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// trace returns a schedule as text: the commits, the reflectors' failures, and each
// consumer's records.
func (s *stage) trace(h check.History) string {
	var b strings.Builder
	for i, e := range h.Epochs {
		fmt.Fprintf(&b, "epoch %d from %d to %d\n", i, e.Base, e.Last)
		for _, w := range e.Writes {
			if w.Object == nil {
				fmt.Fprintf(&b, "  %d delete %s\n", w.Revision, w.Key)
			} else {
				fmt.Fprintf(&b, "  %d put %v\n", w.Revision, plain(w.Object))
			}
		}
	}
	for _, p := range s.processes {
		fmt.Fprintf(&b, "%s\n", p.name)
		for _, line := range p.counts.log {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		for _, l := range p.source.breaches.list() {
			fmt.Fprintf(&b, "  %s breach: %s (%d, %d] delivered %v detected %v\n", virtualTime(l.At), l.Fault, l.From, l.To,
				l.Delivered, l.Detected)
		}
	}
	for _, c := range s.judged() {
		fmt.Fprintf(&b, "%s\n", c.name)
		for i, r := range c.transcript.Records {
			fmt.Fprintf(&b, "  %d %s %s\n", i, virtualTime(c.times[i]), describe(r))
		}
	}
	return b.String()
}

// virtualTime returns a time as seconds since the schedule's start.
func virtualTime(t time.Time) string { return fmt.Sprintf("%9.3f", t.Sub(epochStart).Seconds()) }

// epochStart is the start of every synctest bubble's time.
var epochStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// describe returns a record as text.
func describe(r check.Record) string {
	switch r := r.(type) {
	case check.Received:
		var all []string
		for _, c := range changes(r.Delivery) {
			all = append(all, fmt.Sprintf("%s at %d (%v)", c.Type, c.Revision, plain(c.Object)))
		}
		switch d := r.Delivery.(type) {
		case keepwatch.Batch:
			return fmt.Sprintf("batch (%d, %d] %s", d.From, d.To, strings.Join(all, ", "))
		case keepwatch.Gap:
			return fmt.Sprintf("gap %s (%d, %d] %s", d.Reason, d.From, d.To, strings.Join(all, ", "))
		}
	case check.Shown:
		var all []string
		for _, o := range r.Objects {
			all = append(all, fmt.Sprint(plain(o)))
		}
		slices.Sort(all)
		return fmt.Sprintf("shown %d %s", r.Revision, strings.Join(all, ", "))
	case check.Resumed:
		return fmt.Sprintf("resumed at %d", r.Cursor)
	case check.Ended:
		return fmt.Sprintf("ended: %v", r.Err)
	}
	return fmt.Sprint(r)
}
