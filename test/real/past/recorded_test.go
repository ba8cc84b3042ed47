package past

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recorded is an answer of the server.
type recorded struct {
	kind         kind
	path, accept string
	revision     int64
	body         []byte
	// second is the path of the second page, without its token, and next the answer to it. It is empty without one.
	second string
	next   []byte
	object bool // not a list
}

// record changes n objects, and lists a type after each change. It also reads one object for each four lists.
func (r *rig) record(n int) (all []recorded) {
	r.Helper()
	for range n {
		r.change()
		k := kinds[r.random.IntN(len(kinds))]
		all = append(all, r.list(k))
		if names := r.existing(k); len(names) > 0 && r.random.IntN(4) == 0 {
			all = append(all, r.get(k, names[r.random.IntN(len(names))]))
		}
	}
	return all
}

// list lists a type with an encoding and a selector at random.
func (r *rig) list(k kind) recorded {
	r.Helper()
	query := "?"
	if r.random.IntN(2) == 0 {
		query += k.queries[r.random.IntN(len(k.queries))]
	}
	l := recorded{kind: k, path: k.path + query, accept: []string{asJSON, asJSON, asTable, asMetadata}[r.random.IntN(4)]}
	l.body = r.mustGet(l.path, l.accept)
	l.revision = r.revisionIn(l.body)
	if token := tokenIn(l.body); token != "" {
		l.second = l.path + "&continue="
		l.next = r.mustGet(l.second+token, l.accept)
	}
	return l
}

// get reads an object.
func (r *rig) get(k kind, name string) recorded {
	r.Helper()
	o := recorded{kind: k, path: k.path + "/" + name + "?", accept: asJSON, object: true}
	o.body = r.mustGet(o.path, o.accept)
	o.revision = r.revisionIn(o.body)
	return o
}

func (r *rig) mustGet(path, accept string) []byte {
	r.Helper()
	code, body := r.send(http.MethodGet, path, "", accept)
	if code != http.StatusOK {
		r.Fatalf("%s: %d, %s", path, code, body)
	}
	return body
}

// existing returns the objects of a type that change has made, in an order that depends on the seed alone.
func (r *rig) existing(k kind) (names []string) {
	for name, exists := range r.names[k.path] {
		if exists {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// revision returns the revision of the server.
func (r *rig) revision() int64 {
	r.Helper()
	return r.revisionIn(r.mustGet(kinds[0].path+"?limit=1", asJSON))
}

// revisionIn returns the revision of a list or an object.
func (r *rig) revisionIn(body []byte) int64 {
	r.Helper()
	var about metav1.PartialObjectMetadata // a list has its revision in the same place
	if err := json.Unmarshal(body, &about); err != nil {
		r.Fatalf("%s: %v", body, err)
	}
	revision, err := strconv.ParseInt(about.ResourceVersion, 10, 64)
	if err != nil {
		r.Fatalf("%s: %v", body, err)
	}
	return revision
}

// continued is a continue token: kube-apiserver has two ways to write one, of its watch cache and of etcd.
var continued = regexp.MustCompile(`"continue":"([^"]+)"`)

// tokenIn returns the token of the next page, or "".
func tokenIn(body []byte) string {
	if found := continued.FindSubmatch(body); found != nil {
		return url.QueryEscape(string(found[1]))
	}
	return ""
}

// span are the revisions after one and up to another.
type span struct{ after, upTo int64 }

func (s span) has(revision int64) bool { return s.after < revision && revision <= s.upTo }

// knowledge is what a history can have.
type knowledge struct {
	lost      span // what it cannot have
	uncertain span // where it may have a gap: at which revisions the syncs have read the types is not known exactly
	redefined span // where widgets may have gaps
}

// judge compares what was recorded with what each history answers: at its revision, or, if a moment is given, at that
// moment with the exact revision.
func (r *rig) judge(all []recorded, moment string, known knowledge) {
	r.Helper()
	for _, s := range r.stores {
		r.judgeIn(s, all, moment, known)
	}
}

// missing is what a refusal says of a gap.
var missing = regexp.MustCompile(`the history between revisions \d+ and \d+ is missing .*the nearest known moments are`)

func (r *rig) judgeIn(s *store, all []recorded, moment string, known knowledge) {
	r.Helper()
	equal, refused, pages := 0, 0, 0
	for i, l := range all {
		at, exact := fmt.Sprintf("/revision/%d", l.revision), ""
		if moment != "" {
			if l.object { // an exact revision is for lists
				continue
			}
			at, exact = "/"+moment, fmt.Sprintf("&resourceVersion=%d&resourceVersionMatch=Exact", l.revision)
		}
		code, body := r.answer(s.past, http.MethodGet, at+l.path+exact, "", l.accept)
		what := fmt.Sprintf("%s: answer %d, %s%s as %s at %d", s.database, i, at, l.path, l.accept, l.revision)
		if code == http.StatusGone && missing.Match(body) {
			if !known.uncertain.has(l.revision) && !(l.kind.resource == widgets && known.redefined.has(l.revision)) {
				r.Errorf("%s is refused: %s", what, body)
				return
			}
			refused++
			continue
		}
		if known.lost.has(l.revision) {
			r.Errorf("%s is lost, and answered: %d, %.3000s", what, code, body)
			return
		}
		if !l.equal(code, body, l.body, s.exact) {
			r.Errorf("%s: %d\n%s", what, code, l.difference(body, l.body))
			return
		}
		equal++
		if l.second == "" {
			continue
		}
		code, body = r.answer(s.past, http.MethodGet, at+l.second+tokenIn(body), "", l.accept)
		if !l.equal(code, body, l.next, s.exact) {
			r.Errorf("the second page of %s: %d\n%s", what, code, l.difference(body, l.next))
			return
		}
		pages++
	}
	r.Logf("%.6s at %q: %d answers are equal, with %d second pages; %d are refused in gaps", s.database, moment, equal,
		pages, refused)
	if equal < len(all)/2 {
		r.Error("too little was compared")
	}
}

// differing are what Tables may differ in: ages depend on the time of the answer, and the server describes some columns
// in other words.
var differing = regexp.MustCompile(`"(\d+[smhd])+"|"description":"(\\.|[^"\\])*"`)

// equal reports whether the answer of a history is that of the server: its bytes, or its values.
func (l *recorded) equal(code int, got, want []byte, exact bool) bool {
	if code != http.StatusOK {
		return false
	}
	got, want = l.comparable(got), l.comparable(want)
	if exact {
		return bytes.Equal(got, want)
	}
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal(want, &b) == nil && reflect.DeepEqual(a, b)
}

// difference shows two answers from a little before their first different byte on.
func (l *recorded) difference(got, want []byte) string {
	got, want = l.comparable(got), l.comparable(want)
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	at = max(0, at-200)
	return fmt.Sprintf("%.2000s\nwant\n%.2000s", got[at:], want[at:])
}

// comparable returns an answer without what may differ. It is JSON still.
func (l *recorded) comparable(body []byte) []byte {
	body = continued.ReplaceAll(body, []byte(`"continue":"T"`))
	if l.accept != asTable {
		return body
	}
	return differing.ReplaceAllFunc(body, func(text []byte) []byte {
		if name, _, found := strings.Cut(string(text), ":"); found {
			return []byte(name + `:""`)
		}
		return []byte(`"age"`)
	})
}
