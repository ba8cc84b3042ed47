package matrix

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// script makes an observation of two columns: what was written, and what the client's user saw. A word is
// an object and its revision, such as a1@5; -a1@6 is a deletion; "[a1@5 b1@3]" is a list of all objects.
// The letter is the object's name, and with the number its UID. The baseline is revision 10.
func script(writes, lines string) observed {
	o := observed{namespace: "n", newest: 100, baseline: baseline{revision: 10}}
	for _, word := range strings.Fields(writes) {
		line := parseWord(word)
		w := check.Write{Revision: revisionOf(line), Key: keepwatch.Key{Namespace: "n", Name: line.Name}}
		if line.Type != "DELETED" {
			w.Object = object{w.Key, keepwatch.UID(line.UID), w.Revision}
		}
		o.writes = append(o.writes, w)
	}
	o.baseline.fold = stateAt(o.writes, 10)
	var list *clients.Line
	for _, word := range strings.Fields(lines) {
		if rest, ok := strings.CutPrefix(word, "["); ok {
			list, word = &clients.Line{Type: "LISTED", Objects: map[string]string{}}, rest
		}
		word, end := strings.CutSuffix(word, "]")
		line := parseWord(word)
		if list == nil {
			o.arrivals = append(o.arrivals, arrival{Line: line})
			continue
		}
		list.Objects[line.Name] = line.UID + "/" + line.Revision
		if end {
			o.arrivals, list = append(o.arrivals, arrival{Line: *list}), nil
		}
	}
	return o
}

func parseWord(word string) clients.Line {
	line := clients.Line{Type: "MODIFIED"}
	word, deleted := strings.CutPrefix(word, "-")
	if deleted {
		line.Type = "DELETED"
	}
	line.UID, line.Revision, _ = strings.Cut(word, "@")
	line.Name = line.UID[:1]
	return line
}

func revisionOf(line clients.Line) keepwatch.Revision {
	var n uint64
	_, _ = fmt.Sscan(line.Revision, &n)
	return keepwatch.Revision(n)
}

// TestMeasure compares the counts of short observations: lost final states, intermediate states and
// deletions; duplicates; and the promises that package check finds broken.
func TestMeasure(t *testing.T) {
	const writes = "a1@5 b1@6 a1@11 -b1@12 b2@13 c1@14 c1@15 -c1@16"
	tests := []struct{ name, lines, want string }{
		{"everything", "a1@11 -b1@12 b2@13 c1@14 c1@15 -c1@16", "0 0 0 0 []"},
		{"a list at the end", "[a1@11 b2@13]", "0 2 0 0 []"},
		{"a list between", "a1@11 [a1@11 b2@13 c1@14] c1@15 -c1@16", "0 0 0 0 []"},
		{"a relist, object by object", "b2@13 a1@11 -b1@6", "0 2 0 0 [P6 P3]"},
		{"a relist, deletions first", "-b1@6 b2@13 a1@11", "0 2 0 0 []"},
		{"a skipped event", "a1@11 -b1@12 b2@13 c1@15 -c1@16", "0 1 0 0 []"},
		{"a skipped deletion", "a1@11 -b1@12 b2@13 c1@14 c1@15", "1 0 1 0 []"},
		{"a skipped deletion before the same name", "a1@11 b2@13 c1@14 c1@15 -c1@16", "0 0 1 0 [P6]"},
		{"nothing", "", "2 2 1 0 []"},
		{"an old state again", "a1@11 a1@5 -b1@12 b2@13 c1@14 c1@15 -c1@16", "1 0 0 1 [P5 P3]"},
		{"an event twice", "a1@11 -b1@12 b2@13 b2@13 c1@14 c1@15 -c1@16", "0 0 0 1 []"},
		{"a deleted object again", "a1@11 -b1@12 b2@13 c1@14 c1@15 -c1@16 c1@15", "1 0 0 1 [P7]"},
		{"a stale list", "a1@11 -b1@12 b2@13 [a1@5 b1@6] -b1@12 b2@13 a1@11", "0 2 0 3 [P5 P3]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := script(writes, test.lines)
			r := o.count()
			promises := []check.Promise{}
			for _, v := range judge(o) {
				t.Log(v)
				promises = append(promises, v.Promise)
			}
			if got := fmt.Sprintln(r.LostFinal, r.LostIntermediate, r.LostDeletes, r.Duplicates, promises); got != test.want+
				"\n" {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
