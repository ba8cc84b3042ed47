package history

import "time"

// ReportedOf is [View.Reported] with a bound for what is in memory.
var ReportedOf = (*View).reported

// SetPartBytes bounds the objects that Events has in memory.
func SetPartBytes(v *View, bytes int) { v.partBytes = bytes }

// TimelineOf is [View.Timeline] with a bound for the states in memory.
var TimelineOf = (*View).timeline

// SetNow sets the clock of a history.
func SetNow(h *History, now time.Time) { h.now = func() time.Time { return now } }
