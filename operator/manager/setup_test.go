package manager

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// asProgram makes the test binary a program with an idle operator, or with two alike if it is "twice".
const asProgram = "MANAGER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "":
	case "twice":
		Main(idle(), idle())
	default:
		Main(idle())
	}
	os.Exit(await.Tests(m))
}

// leases is an API server's part that serves Leases, with its answers to writes of an old state.
type leases struct {
	mu       sync.Mutex
	stored   map[string]*coordinationv1.Lease // by the path of the request
	revision int
}

// newLeases returns the configuration of clients of a server that ends with the test.
func newLeases(t *testing.T) *rest.Config {
	return newServer(t, &leases{stored: map[string]*coordinationv1.Lease{}})
}

func newServer(t *testing.T, h http.Handler) *rest.Config {
	s := httptest.NewServer(h)
	cfg := &rest.Config{Host: s.URL, QPS: -1}
	transport := &http.Transport{}
	cfg.Transport = transport
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	return cfg
}

func (l *leases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := r.URL.Path
	var lease coordinationv1.Lease
	if r.Method != http.MethodGet {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &lease)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
	}
	if r.Method == http.MethodPost {
		path += "/" + lease.Name
	}
	old := l.stored[path]
	switch {
	case r.Method == http.MethodPost && old != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	case r.Method != http.MethodPost && old == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	case r.Method == http.MethodPut && lease.ResourceVersion != old.ResourceVersion:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	case r.Method == http.MethodPost, r.Method == http.MethodPut:
		l.revision++
		lease.ResourceVersion = strconv.Itoa(l.revision)
		l.stored[path] = &lease
	}
	answer(w, http.StatusOK, l.stored[path])
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprint(reason),
	})
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}
