package informer_test

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

// server is as much of a Kubernetes API as informers see, for pods, with a true
// history and faults at will.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	revision int
	pods     map[string]*corev1.Pod
	log      []frame
	oldest   int // revision from which history is kept
	grown    chan struct{}

	lists, watches, streams int
	http1                   int // requests by HTTP/1
	// interfere answers a request in the server's place, and says so.
	interfere func(w http.ResponseWriter, r *http.Request) bool
	// cut is closed to end the watches that are open.
	cut chan struct{}
}

// frame is one watch event; one without an object is raw.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`

	revision int
	raw      string
}

func newServer(t *testing.T, pods ...*corev1.Pod) *server {
	return startServer(t, func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Start()
	}, pods...)
}

// newSecureServer speaks HTTP/2 over TLS.
func newSecureServer(t *testing.T, pods ...*corev1.Pod) *server {
	return startServer(t, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	}, pods...)
}

func startServer(t *testing.T, start func(*httptest.Server), pods ...*corev1.Pod) *server {
	s := &server{revision: 100, oldest: 100, pods: map[string]*corev1.Pod{}, grown: make(chan struct{}), cut: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(s)
	start(s.Server)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	for _, p := range pods {
		s.put(p)
	}
	s.forgetHistory()
	return s
}

func (s *server) config() *rest.Config { return &rest.Config{Host: s.URL, QPS: -1} }

// put creates or updates a pod.
func (s *server) put(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	kind := "MODIFIED"
	held, there := s.pods[p.Name]
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	if !there {
		kind = "ADDED"
		if p.UID == "" {
			uid(fmt.Sprintf("%s-%d", p.Name, s.revision))(p)
		}
	} else {
		p.UID = held.UID
	}
	at(s.revision)(p)
	s.pods[p.Name] = p
	s.tell(kind, p)
}

// remove deletes a pod.
func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	p := s.pods[name].DeepCopy()
	delete(s.pods, name)
	at(s.revision)(p)
	s.tell("DELETED", p)
}

// mark is what bookmarks carry.
func (s *server) mark() *corev1.Pod {
	mark := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	at(s.revision)(mark)
	return mark
}

// inject writes text into the watches, behind what happened.
func (s *server) inject(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(frame{raw: text, revision: s.revision})
}

func (s *server) tell(kind string, p *corev1.Pod) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	s.add(frame{Type: kind, Object: text, revision: s.revision})
}

func (s *server) add(f frame) {
	s.log = append(s.log, f)
	close(s.grown)
	s.grown = make(chan struct{})
}

// forgetHistory makes watches from before now expire.
func (s *server) forgetHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest, s.log = s.revision, nil
}

// cutWatches ends the watches that are open, cleanly.
func (s *server) cutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// interfering sets who answers; nil is the server itself.
func (s *server) interfering(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interfere = f
}

// times answers the next n watches by f.
func (s *server) failWatches(n int, f http.HandlerFunc) {
	left := n
	var mu sync.Mutex
	s.interfering(func(w http.ResponseWriter, r *http.Request) bool {
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

// counts are the requests so far: lists in pages, lists as streams, watches.
func (s *server) counts() (lists, streams, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.streams, s.watches
}

// onlyHTTP2 reports whether all requests so far came by HTTP/2.
func (s *server) onlyHTTP2() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.http1 == 0
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	interfere := s.interfere
	if r.ProtoMajor < 2 {
		s.http1++
	}
	switch {
	case r.URL.Path == "/api/v1":
	case q.Get("sendInitialEvents") == "true":
		s.streams++
	case q.Has("watch"):
		s.watches++
	default:
		s.lists++
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/api/v1":
		reply(w, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true}}})
	case interfere != nil && interfere(w, r):
	case q.Has("watch"):
		s.watch(w, r)
	default:
		s.list(w)
	}
}

func reply(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }

func (s *server) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)}}
	for _, p := range s.sorted() {
		bare := *p
		bare.TypeMeta = metav1.TypeMeta{} // as in lists of built-in kinds
		list.Items = append(list.Items, bare)
	}
	reply(w, list)
}

func (s *server) sorted() (all []*corev1.Pod) {
	for _, p := range s.pods {
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

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	var sent int
	var frames []frame
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, p := range s.sorted() {
			text, _ := json.Marshal(p)
			frames = append(frames, frame{Type: "ADDED", Object: text})
		}
		end := s.mark()
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		text, _ := json.Marshal(end)
		frames = append(frames, frame{Type: "BOOKMARK", Object: text})
		sent = s.revision
	} else {
		sent, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		if sent < s.oldest {
			text, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status: "Failure", Reason: metav1.StatusReasonExpired, Code: 410, Message: "too old resource version"})
			s.mu.Unlock()
			reply(w, frame{Type: "ERROR", Object: text})
			return
		}
	}
	next := 0
	for next < len(s.log) && s.log[next].revision <= sent {
		next++
	}
	cut := s.cut
	s.mu.Unlock()
	for {
		for _, f := range frames {
			if f.raw != "" {
				_, _ = w.Write([]byte(f.raw))
			} else {
				reply(w, f)
			}
		}
		w.(http.Flusher).Flush()
		s.mu.Lock()
		if next > len(s.log) {
			next = 0 // history was forgotten
		}
		frames, next = slices.Clone(s.log[next:]), len(s.log)
		grown := s.grown
		s.mu.Unlock()
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

// status answers with a Status.
func status(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		reply(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: int32(code), Message: message})
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = connection.Close()
}
