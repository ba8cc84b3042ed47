package history

import (
	"fmt"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Moment is a time, a revision, or, if both are zero, the newest known state.
type Moment struct {
	Time     time.Time
	Revision keepwatch.Revision
}

// IsNow reports whether a moment is the newest known state.
func (m Moment) IsNow() bool { return m.Time.IsZero() && m.Revision == 0 }

// String returns the moment as [ParseMoment] reads it.
func (m Moment) String() string {
	switch {
	case m.Revision > 0:
		return "revision/" + m.Revision.String()
	case m.IsNow():
		return "now"
	}
	return m.Time.UTC().Format(timeFormat)
}

// timeFormat is RFC 3339 with the milliseconds that the database has, if there are any.
const timeFormat = "2006-01-02T15:04:05.999Z07:00"

const momentForms = "2026-11-28T10:42:00Z, 10:42, -15m, revision/4711 or now"

// clockFormats are the formats of a time of a day.
var clockFormats = []string{"15:04", "15:04:05"}

// localFormats are the formats of a time without a zone.
var localFormats = []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04",
	"2006-01-02 15:04:05"}

// ParseMoment parses a moment. A time of a day is the last one before now, in the zone of now; so is a date.
func ParseMoment(text string, now time.Time) (Moment, error) {
	if text == "now" {
		return Moment{}, nil
	}
	if number, ok := strings.CutPrefix(text, "revision/"); ok {
		revision, err := keepwatch.ParseRevision(number)
		if err != nil {
			return Moment{}, fmt.Errorf("moment %q: %w", text, err)
		}
		return Moment{Revision: revision}, nil
	}
	if back, ok := strings.CutPrefix(text, "-"); ok {
		span, err := ParseSpan(back)
		if err != nil {
			return Moment{}, fmt.Errorf("moment %q: give a span of time such as -15m, -2h30m or -3d", text)
		}
		return at(now.Add(-span), now, text)
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return at(t, now, text)
	}
	for _, format := range localFormats {
		if t, err := time.ParseInLocation(format, text, now.Location()); err == nil {
			return at(t, now, text)
		}
	}
	for _, format := range clockFormats {
		if t, err := time.Parse(format, text); err == nil {
			return at(lastClock(t, now), now, text)
		}
	}
	return Moment{}, fmt.Errorf("moment %q: give %s", text, momentForms)
}

// lastClock returns when a clock in the zone of now has shown a time of a day last. On one day of a year it may have
// shown it twice, and on another one not at all.
func lastClock(of, now time.Time) (last time.Time) {
	y, m, d := now.Date()
	for _, back := range []int{0, 1, 2} {
		day := time.Date(y, m, d-back, of.Hour(), of.Minute(), of.Second(), 0, now.Location())
		for _, shift := range []time.Duration{-time.Hour, 0, time.Hour} {
			t := day.Add(shift)
			if t.Format(time.TimeOnly) == of.Format(time.TimeOnly) && !t.After(now) && t.After(last) {
				last = t
			}
		}
	}
	return last
}

func at(t, now time.Time, text string) (Moment, error) {
	if t.After(now) {
		return Moment{}, fmt.Errorf("moment %q is in the future: it is %s", text, now.Format(time.RFC3339))
	}
	if t.Year() < 1 || t.IsZero() { // the zero time is none
		return Moment{}, fmt.Errorf("moment %q is before every history", text)
	}
	return Moment{Time: t}, nil
}

// ParseSpan parses a duration that may begin with days, of 24 hours each: 90d, 1d12h, 15m. It is not negative.
func ParseSpan(text string) (time.Duration, error) {
	days := time.Duration(0)
	if number, rest, ok := strings.Cut(text, "d"); ok {
		hours, err := time.ParseDuration(number + "h")
		if err != nil || hours < 0 || hours > 100*365*time.Hour {
			return 0, fmt.Errorf("%q days", number)
		}
		if days = hours * 24; rest == "" {
			return days, nil
		}
		text = rest
	}
	span, err := time.ParseDuration(text)
	switch {
	case err != nil:
	case span < 0:
		err = fmt.Errorf("%q is negative", text)
	case days+span < 0: // it overflows
		err = fmt.Errorf("%q is longer than 290 years", text)
	}
	return days + span, err
}
