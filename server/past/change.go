package past

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/past/difference"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// maxDiffLines bounds the lines of a difference.
const maxDiffLines = 1000

// shownChange is the difference that changes of an object have made.
type shownChange struct {
	Title, Managers, Gap, Nothing     string
	Lines                             []diffLine
	LeftOut                           int
	Status                            bool
	Other                             string        // the address of the same with or without status
	Diff, RestoreBefore, RestoreAfter string        // commands
	Named                             []namedObject // by an Event
}

// diffLine is a line of a unified diff.
type diffLine struct{ Class, Text string }

// change returns the change of the query, which must be one of the timeline: the user may read its time.
func (r *pageRead) change(t *history.Timeline) (*shownChange, error) {
	since, err := parsePoint(r.query.Since)
	if err != nil {
		return nil, badRequest(err)
	}
	upTo, err := parsePoint(r.query.UpTo)
	if err != nil {
		return nil, badRequest(err)
	}
	key, selected := r.objectKey()
	of := history.Objects{Resource: r.objects.Resource, Namespace: key.Namespace, Name: key.Name}
	var first, last history.Event
	changes, count := 0, 0 // of the timeline, and of the query
	for e, err := range r.view.Events(r.q.Context(), of, t.After, t.UpTo) {
		if err != nil {
			return nil, err
		}
		if e.Type == history.Missing {
			continue
		}
		if changes++; e.Point.Before(since) || upTo.Before(e.Point) {
			continue
		}
		if count++; count == 1 {
			first = e
		}
		last = e
	}
	if !selected || changes == 0 {
		return nil, notFound("no object of the timeline is " + r.query.Object)
	}
	if count == 0 || first.Point != since || last.Point != upTo {
		return nil, notFound(fmt.Sprintf("the timeline has no change of %s from revision %s to %s", r.query.Object,
			r.query.Since, r.query.UpTo))
	}
	from := sink.Point{Epoch: since.Epoch, Revision: since.Revision - 1}
	var found []difference.Difference
	if err := difference.Each(r.q.Context(), r.view, of, from, upTo, func(d difference.Difference) error {
		found = append(found, d)
		return nil
	}); err != nil {
		return nil, err
	}
	c := &shownChange{
		Title: key.String() + ": " + changeTitle(last), Status: r.query.Status != "",
		Nothing: "The object was created and deleted in this time.",
	}
	if c.Diff, err = r.diff(t, key, from, upTo); err != nil {
		return nil, err
	}
	if count > 1 {
		c.Title = fmt.Sprintf("%s: %d changes until revision %d, %s", key, count, upTo.Revision, showTime(last.Time))
	}
	if g := last.Gap; g != nil {
		c.Gap = fmt.Sprintf(
			"The history from revision %d to %d is missing (%s): there may have been other changes, and at other times.", g.From,
			g.To, g.Reason)
	}
	other := r.query
	if other.Status = "1"; c.Status {
		other.Status = ""
	}
	c.Other = other.URL() + "#difference"
	if len(found) == 0 {
		return c, nil
	}
	return c, c.fill(r, t, key, found[0])
}

// objectKey returns the key of the object of the query, false if the timeline is not about it.
func (r *pageRead) objectKey() (key keepwatch.Key, ok bool) {
	key.Name = r.query.Object
	if namespace, name, namespaced := strings.Cut(r.query.Object, "/"); namespaced {
		key = keepwatch.Key{Namespace: namespace, Name: name}
	}
	return key, (r.objects.Namespace == "" || key.Namespace == r.objects.Namespace) &&
		(r.objects.Name == "" || key.Name == r.objects.Name)
}

// fill adds what a difference shows.
func (c *shownChange) fill(r *pageRead, t *history.Timeline, key keepwatch.Key, d difference.Difference) error {
	text, err := d.Unified(difference.Shown{Status: c.Status}, time.UTC)
	if err != nil {
		return err
	}
	c.Nothing = "Only status or managedFields differ."
	c.Lines, c.LeftOut = linesOf(text, diffClass)
	c.Managers = strings.Join(d.Managers(), ", ")
	event := d.After
	if event == nil {
		event = d.Before
	}
	if c.Named, err = r.named(event); err != nil {
		return err
	}
	if c.RestoreBefore, err = r.restore(t, key, d.Before); err == nil {
		c.RestoreAfter, err = r.restore(t, key, d.After)
	}
	return err
}

// linesOf returns the first lines of a text, and how many others it has.
func linesOf(text string, class func(line string) string) (all []diffLine, leftOut int) {
	for line := range strings.Lines(text) {
		if len(all) == maxDiffLines {
			leftOut++
			continue
		}
		all = append(all, diffLine{class(line), strings.TrimSuffix(line, "\n")})
	}
	return all, leftOut
}

func diffClass(line string) string {
	switch line[0] {
	case '+':
		return "plus"
	case '-':
		return "minus"
	case '@':
		return "hunk"
	}
	return ""
}

// fromDatabase ends the commands: the server does not show its database's address.
const fromDatabase = " --from DATABASE"

// diff returns the command that shows the difference between two points, of a gap that they are in that of its ends. It
// is empty if the history does not know them, or --at cannot name them.
func (r *pageRead) diff(t *history.Timeline, key keepwatch.Key, from, upTo sink.Point) (string, error) {
	earlier, _, err := r.view.Near(r.q.Context(), t.Stream, from)
	if err != nil || earlier == nil {
		return "", err
	}
	_, later, err := r.view.Near(r.q.Context(), t.Stream, upTo)
	if err != nil || later == nil {
		return "", err
	}
	text := fmt.Sprintf("keepwatch history diff %s --at revision/%d --and revision/%d%s",
		r.arguments(key), earlier.Revision, later.Revision, fromDatabase)
	if r.query.Status != "" {
		text += " --status"
	}
	return text, nil
}

// restore returns the command that restores a state, empty if no known point that --at can name has it.
func (r *pageRead) restore(t *history.Timeline, key keepwatch.Key, s *sink.State) (string, error) {
	if s == nil {
		return "", nil
	}
	revision, err := r.view.RevisionOf(r.q.Context(), t.Stream, s)
	if err != nil || revision == 0 {
		return "", err
	}
	return fmt.Sprintf("keepwatch history restore %s --at revision/%d%s", r.arguments(key), revision, fromDatabase), nil
}

// arguments returns the arguments of a command that name an object.
func (r *pageRead) arguments(key keepwatch.Key) string {
	text := quote(r.objects.Resource + "/" + key.Name)
	if key.Namespace != "" {
		text += " -n " + quote(key.Namespace)
	}
	return text
}

var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./:_-]*$`)

// quote returns a word of a shell's command.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// parsePoint parses a revision, with its epoch before it: 2.4711.
func parsePoint(text string) (p sink.Point, err error) {
	if epoch, revision, ok := strings.Cut(text, "."); ok {
		if p.Epoch, err = strconv.Atoi(epoch); err != nil || p.Epoch < 0 {
			return p, errors.New("the epoch of the change is not valid")
		}
		text = revision
	}
	p.Revision, err = keepwatch.ParseRevision(text)
	return p, err
}
