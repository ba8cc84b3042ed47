package check_test

import (
	"strings"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// object is a state of an object. "a/1@5 red" has the name a, the UID a/1, the revision 5 and
// the color red.
type object struct {
	name     string
	uid      keepwatch.UID
	revision keepwatch.Revision
	color    string
}

func (o *object) Key() keepwatch.Key           { return keepwatch.Key{Name: o.name} }
func (o *object) UID() keepwatch.UID           { return o.uid }
func (o *object) Revision() keepwatch.Revision { return o.revision }

// parse parses the notation of object. The color may be missing.
func parse(s string) *object {
	s, color, _ := strings.Cut(s, " ")
	s, revision, _ := strings.Cut(s, "@")
	name, uid, _ := strings.Cut(s, "/")
	r, err := keepwatch.ParseRevision(revision)
	if err != nil {
		panic(err)
	}
	return &object{name: name, uid: keepwatch.UID(name + "/" + uid), revision: r, color: color}
}

func color(o keepwatch.Object) string { return o.(*object).color }

// red and blue are filters.
func red(o keepwatch.Object) bool  { return color(o) == "red" }
func blue(o keepwatch.Object) bool { return color(o) == "blue" }

// write parses "+ a/1@5 red" and "- a@7".
func write(s string) check.Write {
	if name, ok := strings.CutPrefix(s, "- "); ok {
		name, revision, _ := strings.Cut(name, "@")
		r, err := keepwatch.ParseRevision(revision)
		if err != nil {
			panic(err)
		}
		return check.Write{Revision: r, Key: keepwatch.Key{Name: name}}
	}
	o := parse(strings.TrimPrefix(s, "+ "))
	return check.Write{Revision: o.revision, Key: o.Key(), Object: o}
}

func epoch(base keepwatch.Revision, writes ...string) check.Epoch {
	e := check.Epoch{Base: base}
	for _, w := range writes {
		e.Writes = append(e.Writes, write(w))
	}
	return e
}

func history(epochs ...check.Epoch) check.History {
	return check.History{Epochs: epochs, Content: color}
}

// change parses "+ a/1@5 red", "~ a/1@5 red" and "- a/1@5 red". "#7" at its end is a
// revision that is not the object's.
func change(s string) keepwatch.Change {
	s, at, given := strings.Cut(s, " #")
	kind, s, _ := strings.Cut(s, " ")
	o := parse(s)
	c := keepwatch.Change{Revision: o.revision, Object: o}
	switch kind {
	case "+":
		c.Type = keepwatch.Added
	case "~":
		c.Type = keepwatch.Modified
	case "-":
		c.Type = keepwatch.Deleted
	default:
		panic("unknown change " + kind)
	}
	if given {
		r, err := keepwatch.ParseRevision(at)
		if err != nil {
			panic(err)
		}
		c.Revision = r
	}
	return c
}

func changes(lines []string) []keepwatch.Change {
	var all []keepwatch.Change
	for _, s := range lines {
		all = append(all, change(s))
	}
	return all
}

func batch(from, to keepwatch.Revision, lines ...string) check.Received {
	return check.Received{Delivery: keepwatch.Batch{From: from, To: to, Changes: changes(lines)}}
}

func gap(from, to keepwatch.Revision, lines ...string) check.Received {
	return check.Received{Delivery: keepwatch.Gap{From: from, To: to, Reason: keepwatch.GapExpired,
		Changes: changes(lines)}}
}

func rewind(from, to keepwatch.Revision, lines ...string) check.Received {
	return check.Received{Delivery: keepwatch.Gap{From: from, To: to, Reason: keepwatch.GapRewind,
		Changes: changes(lines)}}
}

func shown(at keepwatch.Revision, objects ...string) check.Shown {
	s := check.Shown{Revision: at}
	for _, o := range objects {
		s.Objects = append(s.Objects, parse(o))
	}
	return s
}
