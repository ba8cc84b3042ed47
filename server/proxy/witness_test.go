package proxy

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keepwatch/keepwatch/internal/eventframes"
)

// witness is a client that lists config maps once and then watches, and records what it receives. It lists again only
// after 410.
type witness struct {
	get   func(ctx context.Context, path string) (*http.Response, error)
	path  string
	space string // the namespace of the objects that it records

	mu       sync.Mutex
	received []string // states and deletions
	wrong    []string
	folded   map[string]string // uid to revision
	begun    int               // watches
	listed   int
	cursor   string
}

func newWitness(get func(context.Context, string) (*http.Response, error), path, space string) *witness {
	return &witness{get: get, path: path, space: space, folded: map[string]string{}}
}

// follow begins, and returns a function that ends it.
func (w *witness) follow(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			w.once(ctx)
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}

// once sends one list or watch.
func (w *witness) once(ctx context.Context) {
	w.mu.Lock()
	path, from := w.path, w.cursor
	w.mu.Unlock()
	if from != "" {
		path += "?watch=1&allowWatchBookmarks=true&resourceVersion=" + from
	}
	response, err := w.get(ctx, path)
	if err != nil {
		return
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusGone:
		w.resumeAt("")
	case response.StatusCode != http.StatusOK:
	case from == "":
		w.list(response)
	default:
		w.watch(response)
	}
}

func (w *witness) resumeAt(revision string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursor = revision
}

// list replaces the state.
func (w *witness) list(response *http.Response) {
	list := &corev1.ConfigMapList{}
	text, err := io.ReadAll(response.Body)
	if err != nil || runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), text, list) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed++
	clear(w.folded)
	for _, m := range list.Items {
		if m.Namespace == w.space {
			w.folded[string(m.UID)] = m.ResourceVersion
		}
	}
	w.cursor = list.ResourceVersion
}

func (w *witness) watch(response *http.Response) {
	w.mu.Lock()
	w.begun++
	w.mu.Unlock()
	next := eventsOf(response)
	for {
		kind, m, err := next()
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			w.resumeAt("")
		}
		if err != nil {
			return
		}
		w.add(kind, m)
	}
}

func (w *witness) add(kind string, m metav1.ObjectMeta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid, known := string(m.UID), w.folded[string(m.UID)]
	switch {
	case kind == "BOOKMARK", m.Namespace != w.space && uid != "none": // of other tests
	case kind == "DELETED":
		delete(w.folded, uid)
		w.received = append(w.received, "DELETED "+uid)
		if known == "" {
			w.wrong = append(w.wrong, "a deletion of the unknown object "+m.Name)
		}
	default:
		w.folded[uid] = m.ResourceVersion
		w.received = append(w.received, uid+"/"+m.ResourceVersion)
		if known == m.ResourceVersion {
			w.wrong = append(w.wrong, kind+" "+m.Name+" at "+m.ResourceVersion+", where it was already")
		}
	}
	w.cursor = m.ResourceVersion
}

func (w *witness) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

// has reports whether the witness has a state.
func (w *witness) has(want map[string]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.folded, want)
}

// wrongAmong returns what the witness should not have received, given the states and deletions that there have been.
func (w *witness) wrongAmong(allowed map[string]bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong := w.wrong
	for _, change := range w.received {
		if !allowed[change] {
			wrong = append(wrong, "the client has received "+change+", which the server has never had")
		}
	}
	return wrong
}

// statesOf returns the states of the objects that a server has.
func statesOf(t testing.TB, of corev1client.ConfigMapInterface) map[string]string {
	t.Helper()
	list, err := of.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range list.Items {
		all[string(m.UID)] = m.ResourceVersion
	}
	return all
}

// eventsOf returns a function that reads the events of a watch. An ERROR event is an error.
func eventsOf(response *http.Response) func() (string, metav1.ObjectMeta, error) {
	next := eventframes.Reader(response.Body, strings.HasPrefix(response.Header.Get("Content-Type"), "application/vnd"))
	return func() (string, metav1.ObjectMeta, error) {
		frame, err := next()
		if err != nil {
			return "", metav1.ObjectMeta{}, err
		}
		o, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), frame.Object)
		switch o := o.(type) {
		case *corev1.ConfigMap:
			return frame.Type, o.ObjectMeta, err
		case *metav1.Status:
			return "", metav1.ObjectMeta{}, apierrors.FromObject(o)
		}
		return "", metav1.ObjectMeta{}, err
	}
}
