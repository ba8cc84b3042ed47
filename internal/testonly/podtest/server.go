// Package podtest has a small Kubernetes API that serves pods, for tests of informers.
package podtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Server is a Kubernetes API of pods with a history, whose requests a test can intercept.
type Server struct {
	*httptest.Server
	Mu       sync.Mutex // guards the fields below
	Revision int
	Pods     map[string]*corev1.Pod
	log      []frame
	oldest   int // first revision of the history
	grown    chan struct{}

	lists, watches, streams int
	http1                   int // requests by HTTP/1
	// interfere answers a request instead of the server, and reports whether it did.
	interfere func(w http.ResponseWriter, r *http.Request) bool
	// cut is closed to end the watches that are open.
	cut chan struct{}
}

// frame is one watch event, or raw text.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`

	revision int
	raw      string
}

// NewServer starts a server that speaks HTTP/1, with pods and without history.
func NewServer(t *testing.T, pods ...*corev1.Pod) *Server {
	return startServer(t, func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Start()
	}, pods...)
}

// NewSecureServer starts a server that speaks HTTP/2 over TLS.
func NewSecureServer(t *testing.T, pods ...*corev1.Pod) *Server {
	return startServer(t, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	}, pods...)
}

func startServer(t *testing.T, start func(*httptest.Server), pods ...*corev1.Pod) *Server {
	s := &Server{Revision: 100, oldest: 100, Pods: map[string]*corev1.Pod{}, grown: make(chan struct{}),
		cut: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(s)
	start(s.Server)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	for _, p := range pods {
		s.Put(p)
	}
	s.ForgetHistory()
	return s
}

// Config returns a configuration of clients of the server.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.URL, QPS: -1} }

// Put creates or updates a pod.
func (s *Server) Put(p *corev1.Pod) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Revision++
	kind := "MODIFIED"
	current, exists := s.Pods[p.Name]
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	if !exists {
		kind = "ADDED"
		if p.UID == "" {
			UID(fmt.Sprintf("%s-%d", p.Name, s.Revision))(p)
		}
	} else {
		p.UID = current.UID
	}
	At(s.Revision)(p)
	s.Pods[p.Name] = p
	s.Send(kind, p)
}

// Redefine changes every pod without a write: no revision changes, and no event is sent.
func (s *Server) Redefine(change func(*corev1.Pod)) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for name, p := range s.Pods {
		p = p.DeepCopy()
		change(p)
		s.Pods[name] = p
	}
}

// Remove deletes a pod.
func (s *Server) Remove(name string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Revision++
	p := s.Pods[name].DeepCopy()
	delete(s.Pods, name)
	At(s.Revision)(p)
	s.Send("DELETED", p)
}

// Bookmark returns the object of a bookmark at the newest revision. The caller holds Mu.
func (s *Server) Bookmark() *corev1.Pod {
	mark := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	At(s.Revision)(mark)
	return mark
}

// Inject writes text into the watches, after all events.
func (s *Server) Inject(text string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.add(frame{raw: text, revision: s.Revision})
}

// Send sends an event to the watches. The caller holds Mu.
func (s *Server) Send(kind string, p *corev1.Pod) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	s.add(frame{Type: kind, Object: text, revision: s.Revision})
}

func (s *Server) add(f frame) {
	s.log = append(s.log, f)
	close(s.grown)
	s.grown = make(chan struct{})
}

// ForgetHistory makes watches from an earlier revision expire.
func (s *Server) ForgetHistory() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.oldest, s.log = s.Revision, nil
}

// CutWatches ends the open watches without an error.
func (s *Server) CutWatches() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Intercept sets a function that answers requests: it reports whether it answered. nil is none.
func (s *Server) Intercept(f func(http.ResponseWriter, *http.Request) bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.interfere = f
}

// FailWatches answers the next n watches with f.
func (s *Server) FailWatches(n int, f http.HandlerFunc) {
	left := n
	var mu sync.Mutex
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 || !r.URL.Query().Has("watch") {
			return false
		}
		left--
		f(w, r)
		return true
	})
}

// Counts returns the number of requests: paged lists, streaming lists, watches.
func (s *Server) Counts() (lists, streams, watches int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.lists, s.streams, s.watches
}

// OnlyHTTP2 reports whether all requests used HTTP/2.
func (s *Server) OnlyHTTP2() bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.http1 == 0
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.Mu.Lock()
	interfere := s.interfere
	if r.ProtoMajor < 2 {
		s.http1++
	}
	switch {
	case r.URL.Path == "/api/v1", aboutServer(r):
	case q.Get("sendInitialEvents") == "true":
		s.streams++
	case q.Has("watch"):
		s.watches++
	default:
		s.lists++
	}
	s.Mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/api/v1":
		reply(w, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod",
			Namespaced: true}}})
	case aboutServer(r):
		w.WriteHeader(http.StatusNotFound)
	case interfere != nil && interfere(w, r):
	case q.Has("watch"):
		s.watch(w, r)
	default:
		s.list(w)
	}
}

// aboutServer reports whether a request asks for the version of the server or its OpenAPI documents, which it does not
// have.
func aboutServer(r *http.Request) bool {
	return r.URL.Path == "/version" || r.URL.Path == "/openapi/v3"
}

func reply(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }

func (s *Server) list(w http.ResponseWriter) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.Revision)}}
	for _, p := range s.sorted() {
		bare := *p
		bare.TypeMeta = metav1.TypeMeta{} // as in lists of built-in kinds
		list.Items = append(list.Items, bare)
	}
	reply(w, list)
}

func (s *Server) sorted() (all []*corev1.Pod) {
	for _, p := range s.Pods {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	s.Mu.Lock()
	var sent int
	var frames []frame
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, p := range s.sorted() {
			text, _ := json.Marshal(p)
			frames = append(frames, frame{Type: "ADDED", Object: text})
		}
		end := s.Bookmark()
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		text, _ := json.Marshal(end)
		frames = append(frames, frame{Type: "BOOKMARK", Object: text})
		sent = s.Revision
	} else {
		sent, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		if sent < s.oldest {
			text, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status: "Failure", Reason: metav1.StatusReasonExpired, Code: 410, Message: "too old resource version"})
			s.Mu.Unlock()
			reply(w, frame{Type: "ERROR", Object: text})
			return
		}
	}
	next := 0
	for next < len(s.log) && s.log[next].revision <= sent {
		next++
	}
	cut := s.cut
	s.Mu.Unlock()
	for {
		for _, f := range frames {
			if f.raw != "" {
				_, _ = w.Write([]byte(f.raw))
			} else {
				reply(w, f)
			}
		}
		w.(http.Flusher).Flush()
		s.Mu.Lock()
		if next > len(s.log) {
			next = 0 // history was forgotten
		}
		frames, next = slices.Clone(s.log[next:]), len(s.log)
		grown := s.grown
		s.Mu.Unlock()
		if len(frames) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// Status returns a handler that answers with a Status.
func Status(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		reply(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason,
			Code: int32(code), Message: message})
	}
}

// HangUp closes the connection without an answer.
func HangUp(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = connection.Close()
}
