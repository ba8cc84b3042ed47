package conform_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// mutant is a real server behind a proxy that breaks a rule.
type mutant struct {
	name   string
	breaks []string                                  // the rules that notice it; "storm.…": among those of the storm
	ask    func(q url.Values, r *http.Request)       // changes a request; nil: unchanged
	answer func(r *http.Request, body []byte) []byte // changes the body of an answer that is not a watch; nil: unchanged
	// compacted is whether the real server has no history of its first revisions.
	compacted bool
	events    func() func(frame) []frame // changes the events of a watch in JSON; nil: unchanged
	// intercept reports whether it has answered a request itself; nil: none
	intercept func(w http.ResponseWriter, r *http.Request) bool
}

// fails answers a request with an error of the server.
func fails(w http.ResponseWriter) bool {
	judgetest.Refuse(w, http.StatusInternalServerError, "InternalError", "no kind is registered", "")
	return true
}

// frame is an event of a watch.
type frame struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

func (f frame) metadata() map[string]any { return f.Object["metadata"].(map[string]any) }

// strip is a request without some parameters.
func strip(names ...string) func(url.Values, *http.Request) {
	return func(q url.Values, _ *http.Request) {
		for _, name := range names {
			q.Del(name)
		}
	}
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }
func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && !isWatch(r) && (strings.HasSuffix(r.URL.Path, "/configmaps") ||
		strings.Contains(r.URL.Path, "/probes"))
}

// every changes each nth event.
func every(n int, change func(frame) []frame) func() func(frame) []frame {
	return func() func(frame) []frame {
		seen := 0
		return func(f frame) []frame {
			if seen++; seen%n == 0 {
				return change(f)
			}
			return []frame{f}
		}
	}
}

// eventsOf changes the events of one type.
func eventsOf(kind string, change func(frame) []frame) func() func(frame) []frame {
	return func() func(frame) []frame {
		return func(f frame) []frame {
			if f.Type == kind {
				return change(f)
			}
			return []frame{f}
		}
	}
}

// newest makes initial events of any state those of the newest one. A cache that is behind has fewer objects: a mutant
// of these could be a state that existed.
func newest(q url.Values, _ *http.Request) {
	if q.Get("sendInitialEvents") == "true" && q.Get("resourceVersion") == "0" {
		q.Del("resourceVersion")
	}
}

func dropped(frame) []frame   { return nil }
func doubled(f frame) []frame { return []frame{f, f} }
func list(body []byte) (l map[string]any) {
	if json.Unmarshal(body, &l) != nil || l["items"] == nil {
		return nil
	}
	return l
}

// inLists changes lists in JSON.
func inLists(change func(l map[string]any)) func(*http.Request, []byte) []byte {
	return func(r *http.Request, body []byte) []byte {
		l := list(body)
		if !isList(r) || l == nil {
			return body
		}
		change(l)
		changed, _ := json.Marshal(l)
		return changed
	}
}

// behind answers each request that matches reads with the response before.
func behind(reads func(*http.Request) bool) func(*http.Request, []byte) []byte {
	var mu sync.Mutex
	before := map[string][]byte{}
	return func(r *http.Request, body []byte) []byte {
		if !reads(r) {
			return body
		}
		mu.Lock()
		defer mu.Unlock()
		was := before[r.URL.Path]
		if before[r.URL.Path] = body; was != nil {
			return was
		}
		return body
	}
}

var anyValue = regexp.MustCompile(`"value":"[^"]*"`)

// otherValues changes the values of the objects that some reads return, and nothing else.
func otherValues(reads func(*http.Request) bool) func(*http.Request, []byte) []byte {
	return func(r *http.Request, body []byte) []byte {
		if reads(r) {
			return anyValue.ReplaceAll(body, []byte(`"value":"another"`))
		}
		return body
	}
}

func hasRevision(r *http.Request) bool { return r.URL.Query().Has("resourceVersion") }

// changeBehindInitialEvents is lost: the first change behind the initial events of each watch. Updates wait for the end
// of initial events, so that there is one.
func changeBehindInitialEvents() mutant {
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	return mutant{
		name: "the first change behind the initial events is missing", breaks: []string{"initial.then"},
		ask: func(_ url.Values, r *http.Request) {
			if r.Method == http.MethodPut {
				select {
				case <-ended:
				case <-r.Context().Done():
				}
			}
		},
		events: func() func(frame) []frame {
			next := false
			return func(f frame) []frame {
				if f.Type == "BOOKMARK" && f.metadata()["annotations"] != nil {
					next = true
					end()
				} else if next && f.Type == "MODIFIED" {
					next = false
					return nil
				}
				return []frame{f}
			}
		},
	}
}

// silentBehindSlowInitialEvents sends no change behind initial events, which begin after all changes that were made
// meanwhile.
func silentBehindSlowInitialEvents() mutant {
	var updates atomic.Int64
	updated := make(chan struct{})
	return mutant{
		name: "no change follows slow initial events", breaks: []string{"initial.then"},
		ask: func(q url.Values, r *http.Request) {
			if q.Has("sendInitialEvents") {
				select {
				case <-updated:
				case <-r.Context().Done():
				}
			}
		},
		answer: func(r *http.Request, body []byte) []byte {
			if r.Method == http.MethodPut && updates.Add(1) == 50 {
				close(updated)
			}
			return body
		},
		events: func() func(frame) []frame {
			ended := false
			return func(f frame) []frame {
				if f.Type == "BOOKMARK" && f.metadata()["annotations"] != nil {
					ended = true
				} else if ended && f.Type == "MODIFIED" {
					return nil
				}
				return []frame{f}
			}
		},
	}
}

// inBody changes the object of a request.
func inBody(r *http.Request, change func(o map[string]any)) {
	body, _ := io.ReadAll(r.Body)
	var o map[string]any
	_ = json.Unmarshal(body, &o)
	change(o)
	body, _ = json.Marshal(o)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
}

// revisionOf returns the revision of a continue token, 0 for another text.
func revisionOf(token string) int64 {
	var parsed struct {
		RV int64 `json:"rv"`
	}
	text, _ := base64.RawURLEncoding.DecodeString(token)
	_ = json.Unmarshal(text, &parsed)
	return parsed.RV
}

var mutants = []mutant{
	{name: "lists are one list behind", breaks: []string{"list.newest"}, answer: behind(func(r *http.Request) bool {
		return isList(r) && r.URL.RawQuery == ""
	})},
	{name: "lists have other values", breaks: []string{"list.newest", "list.selector"},
		answer: otherValues(func(r *http.Request) bool { return isList(r) && !hasRevision(r) })},
	{name: "gets have other values", breaks: []string{"get.newest"}, answer: otherValues(func(r *http.Request) bool {
		return r.Method == http.MethodGet && !isList(r) && !hasRevision(r)
	})},
	{name: "lists and gets at a revision have other values", breaks: []string{"get.notolder", "list.notolder",
		"list.exact"},
		answer: otherValues(func(r *http.Request) bool { return r.Method == http.MethodGet && hasRevision(r) })},
	{name: "protobuf has other values", breaks: []string{"encoding.same"}, answer: func(r *http.Request,
		body []byte) []byte {
		if strings.Contains(r.Header.Get("Accept"), "protobuf") {
			return bytes.ReplaceAll(body, []byte("value"), []byte("VALUE"))
		}
		return body
	}},
	{name: "Tables have other labels", breaks: []string{"encoding.same"}, answer: func(r *http.Request,
		body []byte) []byte {
		if strings.Contains(r.Header.Get("Accept"), "as=Table") {
			return bytes.ReplaceAll(body, []byte(`"color":"red"`), []byte(`"color":"blue"`))
		}
		return body
	}},
	{name: "later pages have other values", breaks: []string{"pages.complete"},
		answer: otherValues(func(r *http.Request) bool {
			return isList(r) && r.URL.Query().Has("continue")
		})},
	{name: "initial events have other values", breaks: []string{"initial.newest", "initial.any"}, ask: newest,
		events: eventsOf("ADDED", func(f frame) []frame {
			f.Object["data"] = map[string]any{"value": "another"}
			return []frame{f}
		})},
	{name: "lists at a revision are one list behind", breaks: []string{"list.notolder"},
		answer: behind(func(r *http.Request) bool { return isList(r) && hasRevision(r) })},
	{name: "Exact is ignored", breaks: []string{"list.exact"}, ask: strip("resourceVersionMatch")},
	{name: "a limit makes the list the newest", breaks: []string{"list.exactlimit"}, ask: func(q url.Values,
		r *http.Request) {
		if q.Has("limit") && !q.Has("continue") {
			q.Del("resourceVersion")
		}
	}},
	{name: "any combination is accepted", breaks: []string{"list.invalid", "watch.invalid"}, ask: func(q url.Values,
		r *http.Request) {
		q.Del("resourceVersionMatch")
		q.Del("sendInitialEvents")
	}},
	{name: "future revisions are the newest", breaks: []string{"list.future", "watch.future"}, ask: func(q url.Values,
		r *http.Request) {
		if len(q.Get("resourceVersion")) >= 10 {
			q.Del("resourceVersion")
		}
	}},
	{name: "label selectors are ignored", breaks: []string{"list.selector", "watch.edges"}, ask: strip("labelSelector")},
	{name: "field selectors are ignored", breaks: []string{"list.selector", "watch.name"}, ask: strip("fieldSelector")},
	{name: "a page lacks its last object", breaks: []string{"pages.complete"}, answer: inLists(func(l map[string]any) {
		if items := l["items"].([]any); l["metadata"].(map[string]any)["continue"] != nil && len(items) > 1 {
			l["items"] = items[:len(items)-1]
		}
	})},
	{name: "remainingItemCount is zero", breaks: []string{"pages.remaining"}, answer: inLists(func(l map[string]any) {
		if _, ok := l["metadata"].(map[string]any)["remainingItemCount"]; ok {
			l["metadata"].(map[string]any)["remainingItemCount"] = 0
		}
	})},
	{name: "gets are one state behind", breaks: []string{"get.notolder"}, answer: behind(func(r *http.Request) bool {
		return r.Method == http.MethodGet && !isList(r) && hasRevision(r)
	})},
	{name: "later pages are of another state", breaks: []string{"pages.complete", "pages.notolder"},
		answer: func(r *http.Request, body []byte) []byte {
			if !isList(r) || !r.URL.Query().Has("continue") {
				return body
			}
			return bytes.Replace(body, []byte(`"resourceVersion":"`), []byte(`"resourceVersion":"1`), 1)
		}},
	{name: "an expired token is the first page", breaks: []string{"pages.expired"}, compacted: true,
		ask: func(q url.Values, _ *http.Request) {
			if revisionOf(q.Get("continue")) == 1 {
				q.Del("continue")
			}
		}},
	{name: "the page behind an expired token lacks an object", breaks: []string{"pages.expired"}, compacted: true,
		answer: func(r *http.Request, body []byte) []byte {
			if l := list(body); l != nil && revisionOf(r.URL.Query().Get("continue")) == -1 {
				l["items"] = l["items"].([]any)[1:]
				body, _ = json.Marshal(l)
			}
			return body
		}},
	{name: "any token is the first page", breaks: []string{"pages.invalid", "pages.complete"}, ask: strip("continue")},
	{name: "Tables are of the newest state", breaks: []string{"encoding.same"}, answer: func(r *http.Request,
		body []byte) []byte {
		if strings.Contains(r.Header.Get("Accept"), "as=Table") {
			return bytes.Replace(body, []byte(`"resourceVersion":"`), []byte(`"resourceVersion":"1`), 1)
		}
		return body
	}},
	{name: "compressed lists lack objects", breaks: []string{"encoding.gzip"}, ask: func(q url.Values, r *http.Request) {
		if r.Header.Get("Accept-Encoding") == "gzip" && q.Get("resourceVersionMatch") == "Exact" {
			q.Set("limit", "20")
		}
	}},
	{name: "CBOR lacks an object", breaks: []string{"encoding.cbor"}, ask: func(_ url.Values, r *http.Request) {
		if r.Header.Get("Accept") == "application/cbor" {
			r.Header.Set("Accept", "application/json")
			r.Header.Set("Test-Encoding", "cbor")
		}
	}, answer: func(r *http.Request, body []byte) []byte {
		if l := list(body); l != nil && r.Header.Get("Test-Encoding") == "cbor" {
			l["items"] = l["items"].([]any)[1:]
			body, _ = direct.Marshal(l)
		}
		return body
	}},
	{name: "watches as Tables have no deletions", breaks: []string{"encoding.watch"}, events: eventsOf("DELETED",
		func(f frame) []frame {
			if f.Object["kind"] == "Table" {
				return nil
			}
			return []frame{f}
		})},
	{name: "watches over WebSockets begin at the newest state", breaks: []string{"encoding.websocket"},
		ask: func(q url.Values, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				q.Del("resourceVersion")
			}
		}},
	{name: "a watch begins with MODIFIED", breaks: []string{"watch.initial"}, events: eventsOf("ADDED",
		func(f frame) []frame {
			f.Type = "MODIFIED"
			return []frame{f}
		})},
	{name: "timeoutSeconds is ignored", breaks: []string{"watch.timeout"}, ask: strip("timeoutSeconds")},
	{name: "a watch from an old revision begins at the newest state", breaks: []string{"watch.old"},
		ask: func(q url.Values, _ *http.Request) {
			if q.Get("watch") == "true" && q.Get("resourceVersion") == "1" {
				q.Del("resourceVersion")
			}
		}},
	changeBehindInitialEvents(),
	silentBehindSlowInitialEvents(),
	{name: "bookmarks are always sent", breaks: []string{"watch.bookmarks"}, ask: func(q url.Values, _ *http.Request) {
		if q.Get("watch") == "true" {
			q.Set("allowWatchBookmarks", "true")
		}
	}},
	{name: "a watch without initial events has them", breaks: []string{"initial.none"}, ask: func(q url.Values,
		_ *http.Request) {
		if q.Get("sendInitialEvents") == "false" {
			q.Del("sendInitialEvents")
			q.Del("resourceVersionMatch")
		}
	}},
	{name: "each 5th event is missing", breaks: []string{"watch.since", "storm.complete", "storm.state"},
		events: every(5, dropped)},
	{name: "each 5th event is sent twice", breaks: []string{"watch.since", "storm.complete"}, events: every(5, doubled)},
	{name: "DELETED is missing", breaks: []string{"watch.deletion", "watch.since", "storm.deletions"},
		events: eventsOf("DELETED", dropped)},
	{name: "DELETED has the revision of the last state", breaks: []string{"watch.deletion"},
		events: func() func(frame) []frame {
			last := map[any]any{}
			return func(f frame) []frame {
				m := f.metadata()
				if f.Type == "DELETED" && last[m["uid"]] != nil {
					m["resourceVersion"] = last[m["uid"]]
				}
				last[m["uid"]] = m["resourceVersion"]
				return []frame{f}
			}
		}},
	{name: "events are in another order", breaks: []string{"storm.complete", "watch.since"},
		events: func() func(frame) []frame {
			var delayed *frame
			return func(f frame) []frame {
				if delayed == nil && f.Type != "BOOKMARK" {
					delayed = &f
					return nil
				}
				two := []frame{f}
				if delayed != nil {
					two = append(two, *delayed)
					delayed = nil
				}
				return two
			}
		}},
	{name: "a bookmark is ahead", breaks: []string{"storm.bookmarks"}, events: every(7, func(f frame) []frame {
		ahead := frame{"BOOKMARK", map[string]any{"kind": f.Object["kind"], "apiVersion": f.Object["apiVersion"],
			"metadata": map[string]any{"resourceVersion": later(f, 1000)}}}
		return []frame{f, ahead}
	})},
	{name: "leaving a selector is not shown", breaks: []string{"watch.edges", "storm.edges"}, events: eventsOf("DELETED",
		dropped)},
	{name: "entering a selector is MODIFIED", breaks: []string{"watch.since", "watch.edges", "storm.edges"},
		events: eventsOf("ADDED", func(f frame) []frame {
			f.Type = "MODIFIED"
			return []frame{f}
		})},
	{name: "old states return", breaks: []string{"storm.forward"}, events: func() func(frame) []frame {
		first, n := map[any]frame{}, 0
		return func(f frame) []frame {
			m := f.metadata()
			was, ok := first[m["name"]]
			if !ok && f.Type == "ADDED" {
				first[m["name"]] = f
			}
			if n++; ok && n%9 == 0 {
				return []frame{f, was}
			}
			return []frame{f}
		}
	}},
	{name: "updates ignore the old revision", breaks: []string{"write.conflict"}, ask: func(q url.Values,
		r *http.Request) {
		if r.Method != http.MethodPut { // of ConfigMaps: custom resources cannot be updated without one
			return
		}
		inBody(r, func(o map[string]any) { delete(o["metadata"].(map[string]any), "resourceVersion") })
	}},
	{name: "an object is created although its name exists", breaks: []string{"write.exists"},
		ask: func() func(url.Values, *http.Request) {
			var n atomic.Int64
			return func(_ url.Values, r *http.Request) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps") {
					inBody(r, func(o map[string]any) {
						m := o["metadata"].(map[string]any)
						m["name"] = fmt.Sprint(m["name"], "-", n.Add(1))
					})
				}
			}
		}()},
	{name: "creations are answered with an older revision", breaks: []string{"get.newest", "list.newest", "list.order"},
		answer: func(r *http.Request, body []byte) []byte {
			if r.Method != http.MethodPost {
				return body
			}
			return regexp.MustCompile(`"resourceVersion":"\d+"`).ReplaceAll(body, []byte(`"resourceVersion":"1"`))
		}},
	{name: "other encodings than JSON fail", breaks: []string{"encoding.same", "encoding.watch", "encoding.cbor"},
		intercept: func(w http.ResponseWriter, r *http.Request) bool {
			accept := r.Header.Get("Accept")
			return r.Method == http.MethodGet && accept != "application/json" && accept != "" && fails(w)
		}},
	{name: "lists at an exact revision fail", breaks: []string{"list.any", "initial.newest", "initial.any",
		"pages.notolder", "encoding.gzip"},
		intercept: func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Get("resourceVersionMatch") == "Exact" && fails(w)
		}},
	{name: "lists at 0 lack an object, and exact states are gone", breaks: []string{"list.any"},
		intercept: func(w http.ResponseWriter, r *http.Request) bool {
			isExact := r.URL.Query().Get("resourceVersionMatch") == "Exact"
			if isExact {
				judgetest.Refuse(w, http.StatusGone, "Expired", "the state is gone", "")
			}
			return isExact
		},
		ask: func(q url.Values, _ *http.Request) {
			if q.Get("resourceVersion") == "0" {
				q.Del("resourceVersion") // a cache may be behind: that state is not known
			}
		},
		answer: func(r *http.Request, body []byte) []byte {
			return inLists(func(l map[string]any) {
				if items := l["items"].([]any); len(items) > 2 {
					l["items"] = items[1:]
				}
			})(r, body)
		}},
	{name: "initial events end with an error", breaks: []string{"initial.newest", "initial.any"},
		events: eventsOf("BOOKMARK", func(frame) []frame {
			return []frame{{"ERROR", map[string]any{"kind": "Status", "apiVersion": "v1", "code": 500}}}
		})},
	{name: "lists at 0 state a revision that does not exist yet", breaks: []string{"list.any"},
		answer: func(r *http.Request, body []byte) []byte {
			if r.URL.Query().Get("resourceVersion") != "0" {
				return body
			}
			return inLists(func(l map[string]any) { l["metadata"].(map[string]any)["resourceVersion"] = "1000000000" })(r, body)
		}},
	{name: "initial events end at a revision that does not exist yet", breaks: []string{"initial.newest",
		"initial.notolder", "initial.any"}, events: eventsOf("BOOKMARK", func(f frame) []frame {
		f.metadata()["resourceVersion"] = later(f, 1000000000)
		return []frame{f}
	})},
	{name: "a watch of one selector is silent", breaks: []string{"storm.converges"}, ask: func(q url.Values,
		_ *http.Request) {
		if q.Get("watch") == "true" && q.Get("labelSelector") == "color=green" {
			q.Set("labelSelector", "color=none")
		}
	}},
	{name: "initial events lack an object", breaks: []string{"initial.newest", "initial.any"}, ask: newest,
		events: every(4, dropped)},
	{name: "initial events are an old state", breaks: []string{"initial.newest", "initial.notolder"},
		events: eventsOf("BOOKMARK", func(f frame) []frame {
			f.metadata()["resourceVersion"] = "1"
			return []frame{f}
		})},
}

// later returns a revision at a distance from the frame's.
func later(f frame, by int) string {
	var at int
	fmt.Sscan(f.metadata()["resourceVersion"].(string), &at)
	return fmt.Sprint(at + by)
}

// serve runs the mutant until the end of the test.
func (m mutant) serve(t *testing.T) *rest.Config {
	t.Helper()
	real := api
	if m.compacted {
		real = compacted
	}
	p := judgetest.Proxy{Intercept: m.intercept, Request: m.ask, Answer: m.answer}
	if m.events != nil {
		p.Events = func(body io.ReadCloser) io.ReadCloser { return alter(body, m.events()) }
	}
	return p.Serve(t, real)
}

// alter changes the events of a stream.
func alter(body io.ReadCloser, change func(frame) []frame) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		defer body.Close()
		decoder, encoder := json.NewDecoder(body), json.NewEncoder(writer)
		for {
			var f frame
			if err := decoder.Decode(&f); err != nil {
				writer.CloseWithError(err)
				return
			}
			for _, one := range change(f) {
				if encoder.Encode(one) != nil {
					return
				}
			}
		}
	}()
	return struct {
		io.Reader
		io.Closer
	}{reader, closers{reader, body}}
}

type closers []io.Closer

func (all closers) Close() error {
	for _, c := range all {
		c.Close()
	}
	return nil
}

// Each rule has a mutant that breaks it.
func TestEveryRuleHasAMutant(t *testing.T) {
	for _, id := range conform.RuleIDs() {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return slices.Contains(m.breaks, id) }) {
			t.Errorf("no mutant breaks %s", id)
		}
	}
}

// A judge that cannot fail is worthless: each mutant is noticed by the rules that it breaks.
func TestMutantsAreNoticed(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			only := slices.Clone(m.breaks)
			if slices.ContainsFunc(only, func(id string) bool { return strings.HasPrefix(id, "storm.") }) {
				only = append(only, "storm")
			}
			report, err := conform.Run(t.Context(), m.serve(t), conform.ShortWaits(conform.BuiltinOnly(conform.Only(small,
				only...))))
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range m.breaks {
				i := slices.IndexFunc(report.Results, func(r conform.Result) bool { return r.Rule.ID == id })
				if i < 0 {
					t.Errorf("%s is not a rule", id)
				} else if got := report.Results[i]; got.Verdict != conform.Broken {
					t.Errorf("%s is %v: %v", id, got.Verdict, got.Facts)
				} else {
					t.Logf("%s: %.300s", id, got.Facts[0])
				}
			}
		})
	}
}
