package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// definingServer has definitions, and watches that send nothing.
type definingServer struct {
	*httptest.Server
	mu       sync.Mutex
	answers  map[string]string // by path
	requests map[string]int
}

const (
	crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
	// index1 has hashes of the group version and of another one; index2 and other2 have another one of each.
	index1 = `{"paths":{"apis/example.com/v1":{"serverRelativeURL":"?hash=1"},"apis/apps/v1":{"serverRelativeURL":"?hash=1"}}}`
	index2 = `{"paths":{"apis/example.com/v1":{"serverRelativeURL":"?hash=2"},"apis/apps/v1":{"serverRelativeURL":"?hash=1"}}}`
	other2 = `{"paths":{"apis/example.com/v1":{"serverRelativeURL":"?hash=1"},"apis/apps/v1":{"serverRelativeURL":"?hash=2"}}}`
)

func newDefiningServer(t *testing.T, answers map[string]string) *definingServer {
	s := &definingServer{answers: maps.Clone(answers), requests: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		answer, known := s.answers[r.URL.Path]
		s.requests[r.URL.Path]++
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Has("watch"):
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/widgets"):
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "WidgetList", "apiVersion": "example.com/v1",
				"metadata": map[string]string{"resourceVersion": "9"}, "items": []any{}})
		case known:
			_, _ = w.Write([]byte(answer))
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *definingServer) change(answers map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, answer := range answers {
		if s.answers[path] = answer; answer == "" {
			delete(s.answers, path)
		}
	}
}

// askNow makes the next watch ask at once.
func (s *Source) askNow() {
	s.definition.mu.Lock()
	s.definition.next = time.Now()
	s.definition.mu.Unlock()
	s.definitions.asking <- struct{}{}
	s.definitions.read = time.Time{}
	<-s.definitions.asking
}

// asked returns when the source received the newest answer.
func (s *Source) asked() time.Time {
	s.definition.mu.Lock()
	defer s.definition.mu.Unlock()
	return s.definition.asked
}

// A watch ends with Redefined if the definition of its type has changed since the one before, or the version of the
// server, and for nothing else. The next list repairs that.
func TestRedefined(t *testing.T) {
	const crd = `{"metadata":{"uid":"u","generation":3}}`
	all := map[string]string{"/version": `{"gitVersion":"v1.34.0"}`, "/openapi/v3": index1, crdPath: crd}
	readable := map[string]string{"/version": `{"gitVersion":"v1.34.0"}`, "/openapi/v3": index1} // by everybody
	for name, row := range map[string]struct {
		before, change map[string]string
		want           bool
	}{
		"nothing":                    {all, nil, false},
		"the version of the server":  {all, map[string]string{"/version": `{"gitVersion":"v1.35.0"}`}, true},
		"the schema":                 {readable, map[string]string{"/openapi/v3": index2}, true},
		"another schema":             {readable, map[string]string{"/openapi/v3": other2}, false},
		"another type of the group":  {all, map[string]string{"/openapi/v3": index2}, false},
		"the definition":             {all, map[string]string{crdPath: `{"metadata":{"uid":"u","generation":4}}`}, true},
		"the definition, made anew":  {all, map[string]string{crdPath: `{"metadata":{"uid":"v","generation":3}}`}, true},
		"the right to read it":       {all, map[string]string{crdPath: ""}, false},
		"no answers":                 {all, map[string]string{"/version": "", "/openapi/v3": "", crdPath: ""}, false},
		"answers of another program": {all, map[string]string{"/version": "ok", "/openapi/v3": "<html>"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newDefiningServer(t, row.before)
			s, err := New(&rest.Config{Host: server.URL, QPS: -1},
				Options{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}})
			if err != nil {
				t.Fatal(err)
			}
			s.definitions.lag = 0
			follow := func() keepwatch.Watch {
				t.Helper()
				s.askNow()
				before := s.asked()
				w, err := s.Watch(t.Context(), 9)
				if err != nil {
					t.Fatal(err)
				}
				for end := time.Now().Add(await.Deadline); !s.asked().After(before); {
					if time.Now().After(end) {
						t.Fatal("the source has not asked for the definition")
					}
					<-time.After(time.Millisecond)
				}
				return w
			}
			follow().Close()
			follow().Close() // the schema is compared once more after the first generation
			server.change(row.change)
			w := follow()
			if row.want {
				defer time.AfterFunc(await.Deadline, w.Close).Stop()
				_, err := w.Next()
				wantFailure(t, err, keepwatch.Redefined, "the definition of the type has changed")
			}
			w.Close()
			again, err := s.Watch(t.Context(), 9)
			if row.want {
				wantFailure(t, err, keepwatch.Redefined, "the definition of the type has changed")
				if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
					t.Fatal(err)
				}
				follow().Close()
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			again.Close()
		})
	}
}

// lateServer serves widgets by a definition that the test changes: its lists show it a second later, as those of a
// server that follows its definitions.
type lateServer struct {
	mu         sync.Mutex
	generation int
	silent     bool // it does not answer questions about definitions
	changes    bool // at the next question
	asked      int  // questions
	shows      time.Time
}

func (l *lateServer) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *lateServer) RoundTrip(q *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case q.URL.Query().Has("watch"):
		events, server := io.Pipe()
		context.AfterFunc(q.Context(), func() { server.Close() })
		return &http.Response{StatusCode: http.StatusOK, Header: w.Header(), Body: events, Request: q}, nil
	case strings.HasSuffix(q.URL.Path, "/widgets"):
		_, _ = io.WriteString(w, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"9"},"items":[]}`)
	case l.silent:
		l.asked++
		w.WriteHeader(http.StatusServiceUnavailable)
	case q.URL.Path == crdPath:
		if l.asked++; l.changes {
			l.changes = false
			l.redefine()
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"uid":"u","generation":%d}}`, l.generation)
	default:
		w.WriteHeader(http.StatusForbidden)
	}
	response := w.Result()
	response.Request = q
	return response, nil
}

// redefine changes the definition. l.mu is locked.
func (l *lateServer) redefine() {
	l.generation++
	l.shows = time.Now().Add(time.Second)
}

// A change of the definition ends the first watch after it, or the one that is open: also one that the source could not
// ask about at first, and one that comes before the first watch has asked. The server shows it by then.
func TestRedefinedIsNoticed(t *testing.T) {
	for name, changes := range map[string]func(*lateServer){
		"before the first watch has asked": func(l *lateServer) { l.do(l.redefine) },
		"when the source cannot ask": func(l *lateServer) {
			l.do(func() { l.silent = true })
			time.Sleep(definitionPeriod + definitionJitter)
			l.do(func() {
				if l.asked == 0 {
					t.Error("the source has not asked")
				}
				l.silent = false
				l.redefine()
			})
		},
		"as the source asks": func(l *lateServer) { l.do(func() { l.changes = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lateServer{generation: 3}
				cfg := &rest.Config{Host: "http://server", QPS: -1, Transport: l}
				shared, err := NewDefinitions(cfg)
				if err != nil {
					t.Fatal(err)
				}
				s, err := New(cfg, Options{
					Resource:    schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
					Definitions: shared, IdleTimeout: time.Hour,
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
					t.Fatal(err)
				}
				l.do(func() { l.asked = 0 })
				w, err := s.Watch(t.Context(), 9)
				if err != nil {
					t.Fatal(err)
				}
				defer time.AfterFunc(await.Deadline, w.Close).Stop()
				changes(l)
				_, err = w.Next()
				wantFailure(t, err, keepwatch.Redefined, "the definition of the type has changed")
				l.do(func() {
					if early := time.Until(l.shows); early > 0 {
						t.Errorf("the list is %v too early", early)
					}
				})
				w.Close()
			})
		})
	}
}

// A source that continues the state of another one fails with Redefined if the definition has changed in between: at
// the first request for the newest revision, which a target would take for a confirmation, and at each watch until a
// list begins.
func TestRedefinedBetweenSources(t *testing.T) {
	const crd = `{"metadata":{"uid":"u","generation":3}}`
	all := map[string]string{"/version": `{"gitVersion":"v1.34.0"}`, "/openapi/v3": index1, crdPath: crd}
	for name, row := range map[string]struct {
		change  map[string]string
		version string // of the type
		want    bool
	}{
		"nothing":                   {nil, "v1", false},
		"the definition":            {map[string]string{crdPath: `{"metadata":{"uid":"u","generation":4}}`}, "v1", true},
		"the version of the server": {map[string]string{"/version": `{"gitVersion":"v1.35.0"}`}, "v1", true},
		"the version of the type":   {nil, "v2", true},
		"no answers":                {map[string]string{"/version": "", "/openapi/v3": "", crdPath: ""}, "v1", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newDefiningServer(t, all)
			source := func(version, shown string) *Source {
				t.Helper()
				s, err := New(&rest.Config{Host: server.URL, QPS: -1},
					Options{Resource: schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "widgets"}})
				if err != nil {
					t.Fatal(err)
				}
				s.SetDefinition(shown)
				return s
			}
			list := func(s *Source) {
				t.Helper()
				if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			first := source("v1", "")
			list(first)
			server.change(row.change)
			s := source(row.version, first.Definition())
			if _, err := s.Newest(t.Context()); row.want {
				wantFailure(t, err, keepwatch.Redefined, "the definition of the type has changed")
			} else if err != nil {
				t.Fatal(err)
			}
			if shown := s.Definition(); shown != first.Definition() {
				t.Errorf("without a list it shows %s in place of %s", shown, first.Definition())
			}
			w, err := s.Watch(t.Context(), 9)
			if !row.want {
				if err != nil {
					t.Fatal(err)
				}
				w.Close()
				return
			}
			wantFailure(t, err, keepwatch.Redefined, "the definition of the type has changed")
			shown := s.Definition()
			list(s)
			if s.Definition() == shown {
				t.Errorf("after a list it shows %s, as before", shown)
			}
			// The target has not stored the list.
			s.SetDefinition(shown)
			_, err = s.Watch(t.Context(), 9)
			wantFailure(t, err, keepwatch.Redefined, "the definition of the type has changed")
		})
	}
}

// The sources of a client share the answers, and a source asks at most once a minute, however often its watches end.
func TestDefinitionsAreReadRarely(t *testing.T) {
	server := newDefiningServer(t, map[string]string{"/version": `{"gitVersion":"v1.34.0"}`, "/openapi/v3": index1})
	cfg := &rest.Config{Host: server.URL, QPS: -1}
	shared, err := NewDefinitions(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"deployments", "replicasets", "daemonsets"} {
		got, complete := shared.of(t.Context(), schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource})
		if got != (definition{Version: "v1", Server: "v1.34.0", Schema: "?hash=1"}) || !complete {
			t.Errorf("%s: %+v, complete: %v", resource, got, complete)
		}
	}
	if n := server.requests["/openapi/v3"]; n != 1 {
		t.Errorf("%d requests", n)
	}
	var d definitionWatch
	if due := d.due(); due < definitionDelay-time.Second || due > definitionDelay+definitionJitter {
		t.Errorf("the first watch asks after %v", due)
	}
	d.answered(definition{}, true)
	if due := d.due(); due < definitionPeriod-time.Second {
		t.Errorf("the next one asks after %v", due)
	}
	if first, again := d.due(), d.due(); again > first {
		t.Errorf("a watch that ends postpones the question from %v to %v", first, again)
	}
}

// definitionsBy are definitions that a function answers for.
func definitionsBy(t *testing.T, answer func(*http.Request) (*http.Response, error)) *Definitions {
	d, err := NewDefinitions(&rest.Config{Host: "http://server"})
	if err != nil {
		t.Fatal(err)
	}
	d.client = &http.Client{Transport: answering(answer)}
	return d
}

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func respond(code int, text string) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

var pods1 = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// A request that its source gives up is no answer for the other sources of a client; and none of them waits for another
// one's longer than it wants.
func TestUnansweredDefinitionsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		d := definitionsBy(t, func(r *http.Request) (*http.Response, error) {
			if hangs {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			if r.URL.Path == "/version" {
				return respond(200, `{"gitVersion":"v1.34.0"}`)
			}
			return respond(404, "")
		})
		first, giveUp := context.WithCancel(t.Context())
		go d.of(first, pods1)
		synctest.Wait()
		closed, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if now, complete := d.of(closed, pods1); complete || time.Since(start) > 0 {
			t.Errorf("a source whose watch is closed gets %+v after %v", now, time.Since(start))
		}
		giveUp()
		synctest.Wait()
		hangs = false
		if now, complete := d.of(t.Context(), pods1); now.Server != "v1.34.0" || !complete {
			t.Errorf("another source gets %+v, complete: %v", now, complete)
		}
	})
}

// A source that must know the definition before it lists waits once for a server that does not answer a part of the
// questions, whose other answers all sources share meanwhile; and a source that asks for a type's own definition
// receives that.
func TestPartOfADefinitionHangs(t *testing.T) {
	answers := map[string]string{
		"/version":    `{"gitVersion":"v1.34.0"}`,
		"/openapi/v3": `{"paths":{"api/v1":{"serverRelativeURL":"?hash=1"},"apis/example.com/v1":{"serverRelativeURL":"?hash=1"}}}`,
		crdPath:       `{"metadata":{"uid":"u","generation":3}}`,
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for _, row := range []struct {
		hangs string
		of    schema.GroupVersionResource
		want  definition
	}{
		{"/openapi/v3", widgets, definition{Version: "v1", Server: "v1.34.0", Generation: "u/3"}},
		{"/version", widgets, definition{Version: "v1", Schema: "?hash=1", Generation: "u/3"}},
		{crdPath, widgets, definition{Version: "v1", Server: "v1.34.0", Schema: "?hash=1"}},
		{"/openapi/v3", pods1, definition{Version: "v1", Server: "v1.34.0"}},
		{"/version", pods1, definition{Version: "v1", Schema: "?hash=1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := definitionsBy(t, func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == row.hangs {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return respond(200, answers[r.URL.Path])
			})
			start := time.Now()
			var sources sync.WaitGroup
			for range 50 {
				sources.Go(func() {
					s := &Source{resource: row.of, definitions: d}
					s.SetDefinition("")
					for range 3 {
						s.readDefinition(t.Context())
					}
					if s.definition.known != row.want {
						t.Errorf("%s hangs: a source knows %+v", row.hangs, s.definition.known)
					}
				})
			}
			sources.Wait()
			if took := time.Since(start); took > definitionTimeout {
				t.Errorf("%s hangs: three lists of each source wait for %v", row.hangs, took)
			}
		})
	}
}

// While a server refuses questions about definitions, because it is overloaded, or does not accept credentials, its
// sources ask less and less often, and one of them for all.
func TestRefusedDefinitionsAreAskedForRarely(t *testing.T) {
	for _, code := range []int{401, 429, 503} {
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int32
			d := definitionsBy(t, func(*http.Request) (*http.Response, error) {
				requests.Add(1)
				return respond(code, "")
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			var sources sync.WaitGroup
			for range 300 {
				sources.Go(func() {
					s := &Source{resource: pods1, definitions: d}
					s.watchDefinition(ctx, &watch{frames: &frames{exchange: &exchange{}}})
				})
			}
			sources.Wait()
			// A source asks in the first minute, and 1, 2 and 4 minutes after each question; all of them within 30 s. A
			// question is two requests.
			if n := requests.Load() / 2; n < 4 || n > 4*(int32(definitionJitter/definitionsAge)+1) {
				t.Errorf("%d: %d requests", code, n)
			}
		})
	}
}

// A watch asks until the server has answered.
func TestDefinitionIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		d := definitionsBy(t, func(r *http.Request) (*http.Response, error) {
			if requests.Add(1) <= 6 {
				return respond(503, "")
			}
			return respond(404, "")
		})
		s, start := &Source{resource: pods1, definitions: d}, time.Now()
		s.watchDefinition(t.Context(), &watch{frames: &frames{exchange: &exchange{}}})
		if took := time.Since(start); requests.Load() != 8 || took < 7*definitionPeriod || took > 8*definitionPeriod {
			t.Errorf("%d requests in %v", requests.Load(), took)
		}
	})
}

// Servers of two versions behind one address answer in turn, or at random: the source asks less and less often, and so
// lists. When one of them is left, it asks as often as before.
func TestAlternatingDefinitions(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for name, version := range map[string]func(n int) int{
		"in turn":   func(n int) int { return n % 2 },
		"at random": func(int) int { return random.IntN(2) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d definitionWatch
				// answer returns how many lists follow answers for a time.
				answer := func(answers time.Duration, version func(n int) int) (lists int) {
					start := time.Now()
					for n := 0; time.Since(start) < answers; n++ {
						time.Sleep(d.due())
						if d.answered(definition{Server: fmt.Sprint("v1.", 33+version(n))}, true); d.changed {
							d.listed()
							lists++
						}
					}
					return lists
				}
				if lists := answer(24*time.Hour, version); lists > 100 {
					t.Errorf("%d lists in a day", lists)
				}
				if answer(4*time.Hour, func(int) int { return 1 }); d.due() > 2*definitionPeriod {
					t.Errorf("after hours of one version the source asks in %v", d.due())
				}
				answer(24*time.Hour, version)
				time.Sleep(d.due())
				if d.answered(definition{Server: "v1.35"}, true); !d.changed || d.due() > 2*definitionPeriod {
					t.Errorf("after a new version the source asks in %v", d.due())
				}
			})
		})
	}
}

// A schema that is published after its generation was read leads to a list once more, and only then.
func TestSchemaBehindItsGeneration(t *testing.T) {
	var d definitionWatch
	for n, row := range []struct {
		now  definition
		want bool
	}{
		{definition{Generation: "u/1", Schema: "0"}, false},
		{definition{Generation: "u/1", Schema: "1"}, true}, // the first answer may be one of a definition that had just changed
		{definition{Generation: "u/2", Schema: "1"}, true},
		{definition{Generation: "u/2", Schema: "2"}, true},
		{definition{Generation: "u/2", Schema: "3"}, false}, // another type of the group
		{definition{Generation: "u/3", Schema: "3"}, true},
		{definition{Generation: "u/3"}, false}, // a request has failed
		{definition{Generation: "u/3", Schema: "4"}, true},
	} {
		if d.answered(row.now, row.now.Schema != ""); d.changed != row.want {
			t.Errorf("answer %d: changed %v", n, d.changed)
		}
		d.listed()
	}
}

// The schema of a server of a new version is not compared with the old server's, although it is read after the version:
// the list for the version has shown it.
func TestSchemaBehindItsServer(t *testing.T) {
	var d definitionWatch
	for n, row := range []struct {
		now  definition
		want bool
	}{
		{definition{Server: "v1.33", Schema: "1"}, false},
		{definition{Server: "v1.33"}, false}, // a request has failed
		{definition{Server: "v1.34"}, true},
		{definition{Server: "v1.34", Schema: "2"}, false},
		{definition{Server: "v1.34"}, false},
		{definition{Server: "v1.34", Schema: "3"}, true},
		{definition{Schema: "3"}, false},
		{definition{Server: "v1.35", Schema: "4"}, true},
		{definition{Server: "v1.36", Generation: "u/1"}, true},
		{definition{Server: "v1.36", Schema: "5", Generation: "u/1"}, false},
		{definition{Server: "v1.37", Generation: "u/2"}, true},
		{definition{Server: "v1.37", Schema: "6", Generation: "u/2"}, true}, // see TestSchemaBehindItsGeneration
	} {
		if d.answered(row.now, row.now.Server != "" && row.now.Schema != ""); d.changed != row.want {
			t.Errorf("answer %d: changed %v", n, d.changed)
		}
		d.listed()
	}
}
