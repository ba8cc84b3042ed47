package past

import (
	"cmp"
	"context"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
)

// Config describes a server.
type Config struct {
	// History is what is served. Required.
	History *history.History
	// Token is the bearer token that every request needs. Required.
	Token string
	// AllowGaps answers moments in a declared gap with the state that is known of them, and a Warning header.
	AllowGaps bool
	// MaxReplays bounds the open watches. Zero is 64.
	MaxReplays int
	// Registry receives the metrics. It may be nil.
	Registry metrics.KubeRegistry
}

// encodingsBudget bounds the bytes of cached encodings.
const encodingsBudget = 256 << 20

// Server serves a history. It answers while Run runs. It is safe for concurrent use.
type Server struct {
	config Config
	infos  *request.RequestInfoFactory
	caches *caches
	tables *tables
	reads  http.Handler
	shown  http.Handler // the metrics
	now    func() time.Time
}

// New returns a server. It reads nothing.
func New(config Config) (*Server, error) {
	if config.Registry == nil {
		config.Registry = metrics.NewKubeRegistry()
	}
	tables, err := newTables()
	if err != nil {
		return nil, err
	}
	budget := readpath.NewBudget(encodingsBudget)
	budget.Register(config.Registry)
	s := &Server{
		config: config, tables: tables, now: time.Now, shown: metricsHandler(config.Registry),
		infos:  &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		caches: newCaches(config.History, budget, watchcache.NewMetrics(config.Registry), newMeters(config.Registry), cmp.Or(config.MaxReplays, maxReplays)),
	}
	handler := readpath.NewHandler(http.HandlerFunc(refuse), lookup, budget, 0)
	s.reads = readpath.WithWriteDeadline(genericapifilters.WithWarningRecorder(warned(handler)))
	return s, nil
}

// Run lets caches run until ctx ends, and waits for them.
func (s *Server) Run(ctx context.Context) { s.caches.run(ctx) }

// ServeHTTP answers a request for a moment.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch q.URL.Path {
	case "/readyz", "/livez", "/healthz":
		_, _ = w.Write([]byte("ok"))
		return
	}
	if !s.authenticated(q) {
		writeStatus(w, unauthorized())
		return
	}
	if q.URL.Path == "/metrics" && q.Method == http.MethodGet {
		s.shown.ServeHTTP(w, q)
		return
	}
	p, err := s.parsePath(q.URL)
	if err != nil {
		writeStatus(w, err)
		return
	}
	q = q.Clone(q.Context())
	q.URL.Path, q.URL.RawPath, q.URL.RawQuery = p.path, "", p.query
	info, err := s.infos.NewRequestInfo(q)
	if err != nil {
		writeStatus(w, badRequest(err))
		return
	}
	q = q.WithContext(request.WithRequestInfo(q.Context(), info))
	switch {
	case !info.IsResourceRequest:
		s.serveDiscovery(w, q, p)
	case info.Verb != "get" && info.Verb != "list" && info.Verb != "watch":
		writeStatus(w, readOnly(info))
	case info.Subresource != "":
		writeStatus(w, noSubresource(info))
	default:
		s.serveRead(w, q, info, p)
	}
}

// authenticated reports whether a request has the token.
func (s *Server) authenticated(q *http.Request) bool {
	token, ok := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(token), []byte(s.config.Token)) == 1
}

// serveRead answers a GET, LIST or WATCH from the watch cache of its resource at its moment.
func (s *Server) serveRead(w http.ResponseWriter, q *http.Request, info *request.RequestInfo, p *momentPath) {
	found, err := s.resolve(q, info, p)
	if err != nil {
		writeStatus(w, err)
		return
	}
	simplify(q, found.resource)
	if err := checkSelector(q, found.format); err != nil {
		writeStatus(w, err)
		return
	}
	reader, release, err := s.caches.reader(q.Context(), found)
	if err != nil {
		writeStatus(w, err)
		return
	}
	defer release()
	w.Header().Set("Keepwatch-Moment", found.header())
	if found.watch {
		w = &startingWriter{ResponseWriter: w, started: sync.OnceFunc(func() { close(found.started) })}
	}
	s.reads.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), readKey{}, &read{reader, found.warning})))
}

// startingWriter calls started when the response begins: the watch then has its place in the cache.
type startingWriter struct {
	http.ResponseWriter
	started func()
}

func (w *startingWriter) WriteHeader(code int) {
	w.ResponseWriter.WriteHeader(code)
	w.started()
}

// Unwrap is for http.ResponseController.
func (w *startingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// read is what answers a request. It is in its context.
type read struct {
	reader  *readpath.Reader
	warning string
}

type readKey struct{}

func readOf(ctx context.Context) *read {
	r, _ := ctx.Value(readKey{}).(*read)
	return r
}

// lookup returns the reader of a request.
func lookup(q *http.Request, _ *request.RequestInfo) *readpath.Reader {
	if r := readOf(q.Context()); r != nil {
		return r.reader
	}
	return nil
}

// warned adds the warning of a request to its response.
func warned(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r := readOf(q.Context()); r != nil && r.warning != "" {
			warning.AddWarning(q.Context(), "", r.warning)
		}
		next.ServeHTTP(w, q)
	})
}
