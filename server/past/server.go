package past

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
)

// Config describes a server.
type Config struct {
	// History is what is served. Required.
	History *history.History
	// Token is the bearer token that every request needs. Required without Cluster.
	Token string
	// Cluster is the live cluster, if it decides who may read what: by TokenReviews of the clients' bearer tokens, and
	// SubjectAccessReviews. Its identity needs the right to create both, and to get namespaces.
	Cluster *rest.Config
	// Audit receives a line for each request, before it is answered, except those for the server's health and for the
	// page's style sheet. It may be nil.
	Audit io.Writer
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
	// cluster is nil if the token decides, audit if nothing is logged.
	cluster   *authority
	creations *creations
	audit     *auditLog
	reads     http.Handler
	shown     http.Handler // the metrics
	now       func() time.Time

	requestTimeout time.Duration
}

// defaultRequestTimeout bounds the answer to a read, as kube-apiserver's --request-timeout does by default: a client
// that has stopped reading must not hold the cache of a moment, and its share of the memory for responses, for ever,
// nor a slow read a connection of the database. Of a watch it bounds what is read before it begins. It is for each part
// of an answer: what is read first, and the response. The wait between them for the state of a moment has loadTimeout.
// The load of that state goes on when nobody waits for it any more: the next request finds it, where it would otherwise
// never be there.
const defaultRequestTimeout = time.Minute

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
		config: config, tables: tables, creations: newCreations(), now: time.Now, shown: metricsHandler(config.Registry),
		requestTimeout: defaultRequestTimeout,
		infos: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api")},
		caches: newCaches(config.History, budget, watchcache.NewMetrics(config.Registry), newMeters(config.Registry),
			cmp.Or(config.MaxReplays, maxReplays)),
	}
	if config.Cluster != nil {
		if s.cluster, err = newAuthority(config.Cluster); err != nil {
			return nil, err
		}
	}
	if config.Audit != nil {
		s.audit = &auditLog{out: config.Audit}
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
	u, err := s.user(q)
	if err != nil {
		s.refuse(w, q, nil, &request.RequestInfo{Verb: strings.ToLower(q.Method)}, "", err)
		return
	}
	if q.URL.Path == "/metrics" && q.Method == http.MethodGet {
		s.serveMetrics(w, q, u)
		return
	}
	if strings.HasPrefix(q.URL.Path+"/", pagePath) {
		s.servePage(w, q, u, q.URL.Path, history.Moment{})
		return
	}
	p, err := s.parsePath(q.URL)
	if err != nil {
		warn(w, err)
		s.refuse(w, q, u, &request.RequestInfo{Verb: strings.ToLower(q.Method)}, "", err)
		return
	}
	if strings.HasPrefix(p.path+"/", pagePath) {
		s.servePage(w, q, u, p.path, p.moment)
		return
	}
	q = q.Clone(q.Context())
	q.URL.Path, q.URL.RawPath, q.URL.RawQuery = p.path, "", p.query
	info, err := s.infos.NewRequestInfo(q)
	if err != nil {
		s.refuse(w, q, u, &request.RequestInfo{Verb: strings.ToLower(q.Method)}, p.moment.String(), badRequest(err))
		return
	}
	q = q.WithContext(request.WithUser(request.WithRequestInfo(q.Context(), info), u))
	switch {
	case !info.IsResourceRequest:
		s.serveDiscovery(w, q, p)
	case info.Verb != "get" && info.Verb != "list" && info.Verb != "watch":
		s.fail(w, q, p, readOnly(info))
	case info.Subresource != "":
		s.fail(w, q, p, noSubresource(info))
	default:
		s.serveRead(w, q, info, p)
	}
}

// serveMetrics answers who may read them.
func (s *Server) serveMetrics(w http.ResponseWriter, q *http.Request, u user.Info) {
	info := &request.RequestInfo{Verb: "get", Path: q.URL.Path}
	if s.cluster != nil {
		if err := s.cluster.allowed(q.Context(), u, info, time.Time{}); err != nil {
			s.refuse(w, q, u, info, "", err)
			return
		}
	}
	if err := s.audit.write(q, u, info, "", nil); err != nil {
		writeStatus(w, unlogged(err))
		return
	}
	s.shown.ServeHTTP(w, q)
}

// tokenUser is the user that the token authenticates.
var tokenUser = &user.DefaultInfo{Name: "keepwatch-history"}

// user returns the user of a request.
func (s *Server) user(q *http.Request) (user.Info, error) {
	if s.cluster != nil {
		return s.cluster.user(q)
	}
	if !s.authenticated(q) {
		return nil, unauthorized()
	}
	return tokenUser, nil
}

// refuse logs and answers a request that is not answered.
func (s *Server) refuse(w http.ResponseWriter, q *http.Request, u user.Info, info *request.RequestInfo, moment string,
	err error) {
	if failed := s.audit.write(q, u, info, moment, err); failed != nil {
		err = unlogged(failed)
	}
	writeStatus(w, err)
}

// fail logs and answers a request for a moment that is not answered.
func (s *Server) fail(w http.ResponseWriter, q *http.Request, p *momentPath, err error) {
	u, _ := request.UserFrom(q.Context())
	info, _ := request.RequestInfoFrom(q.Context())
	s.refuse(w, q, u, info, p.moment.String(), err)
}

// answer logs a request for a moment, and answers it with a document.
func (s *Server) answer(w http.ResponseWriter, q *http.Request, p *momentPath, document any) {
	u, _ := request.UserFrom(q.Context())
	info, _ := request.RequestInfoFrom(q.Context())
	if err := s.audit.write(q, u, info, p.moment.String(), nil); err != nil {
		writeStatus(w, unlogged(err))
		return
	}
	writeJSON(w, http.StatusOK, document)
}

// unlogged is the error of a request that cannot be logged, and is not answered.
func unlogged(err error) error {
	return apierrors.NewInternalError(fmt.Errorf("the audit log cannot be written: %w", err))
}

// authenticated reports whether a request has the token.
func (s *Server) authenticated(q *http.Request) bool {
	token, ok := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(token), []byte(s.config.Token)) == 1
}

// serveRead answers a GET, LIST or WATCH from the watch cache of its resource at its moment.
func (s *Server) serveRead(w http.ResponseWriter, q *http.Request, info *request.RequestInfo, p *momentPath) {
	u, _ := request.UserFrom(q.Context())
	if s.cluster != nil { // before anything of the history is said, as if the namespace were that of the moment
		if err := s.cluster.allowed(q.Context(), u, info, s.now()); err != nil {
			s.refuse(w, q, u, info, p.moment.String(), err)
			return
		}
	}
	resolving, stop := context.WithTimeout(q.Context(), s.requestTimeout)
	found, err := s.resolve(q.WithContext(resolving), info, p)
	err = s.late(resolving, err)
	stop()
	if err == nil && s.cluster != nil {
		err = s.cluster.allowed(q.Context(), u, info, found.since)
	}
	if err != nil {
		s.refuse(w, q, u, info, p.moment.String(), err)
		return
	}
	if err := s.audit.write(q, u, info, found.header(), nil); err != nil {
		writeStatus(w, unlogged(err))
		return
	}
	if found.watch && s.cluster != nil {
		ctx, cancel := context.WithCancel(q.Context())
		asked, followed := q.Clone(ctx), make(chan struct{}) // q changes below
		go func() {
			defer close(followed)
			s.cluster.follow(ctx, asked, info, found.since, cancel)
		}()
		defer func() { cancel(); <-followed }()
		q = q.WithContext(ctx)
	}
	simplify(q)
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
	w.Header().Set(momentHeader, found.header())
	if found.watch {
		var end func()
		w, q, end = withSocket(w, q)
		defer end()
	}
	ctx := context.WithValue(q.Context(), readKey{}, &read{reader, found.warning})
	if found.watch {
		w = &startingWriter{ResponseWriter: w, started: sync.OnceFunc(func() { close(found.started) })}
	} else {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, s.requestTimeout)
		defer end()
	}
	s.reads.ServeHTTP(w, q.WithContext(ctx))
}

// late returns the error of a request whose deadline has passed, and any other error as it is.
func (s *Server) late(ctx context.Context, err error) error {
	if err == nil || errors.As(err, new(apierrors.APIStatus)) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return apierrors.NewTimeoutError(fmt.Sprintf("the history was not read within %v: try again", s.requestTimeout),
		retrySeconds)
}

// momentHeader names the moment of an answer.
const momentHeader = "Keepwatch-Moment"

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
