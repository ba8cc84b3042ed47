package past

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("").ParseFS(pageFiles, "page/*.html"))

// pagePath is the path of the page, at the root and behind every moment: kubectl proxy adds that of its context.
const pagePath = "/keepwatch/"

// page is what the templates show.
type page struct {
	Query    pageQuery
	Types    []string
	Failure  string
	Timeline *drawing
	Change   *shownChange
	List     *shownList
}

// pageQuery is what a page is asked for, as the form and the links of a page send it.
type pageQuery struct {
	Type, Namespace, Name string
	From, To              string // moments of the timeline; empty: an hour before its end, and now
	At                    string // the moment of the list, empty for none
	// Object is the object of the change that is shown, empty for none. Since and UpTo are the points of its first and
	// last change that are shown as one.
	Object, Since, UpTo string
	Status              string // not empty: with status
}

// members are the parameters of a query, by name.
func (q *pageQuery) members() map[string]*string {
	return map[string]*string{
		"type": &q.Type, "namespace": &q.Namespace, "name": &q.Name, "from": &q.From, "to": &q.To, "at": &q.At,
		"object": &q.Object, "since": &q.Since, "upto": &q.UpTo, "status": &q.Status,
	}
}

func parsePageQuery(values url.Values) (q pageQuery) {
	for name, member := range q.members() {
		*member = strings.TrimSpace(values.Get(name))
	}
	return q
}

// URL returns the address of a query, relative to the page.
func (q pageQuery) URL() string {
	values := url.Values{}
	for name, member := range q.members() {
		if *member != "" {
			values.Set(name, *member)
		}
	}
	return "?" + values.Encode()
}

// servePage answers a request for the page or for its style sheet, whose path follows the moment at.
func (s *Server) servePage(w http.ResponseWriter, q *http.Request, u user.Info, path string, at history.Moment) {
	info := &request.RequestInfo{Verb: strings.ToLower(q.Method)}
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		s.refuse(w, q, u, info, "", statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the past is read-only"))
		return
	}
	switch name, _ := strings.CutPrefix(path, pagePath); name {
	case "":
	case "page.css", path: // path: without the slash at its end
		if err := s.audit.write(q, u, info, "", nil); err != nil {
			writeStatus(w, unlogged(err))
			return
		}
		if name == path {
			w.Header().Set("Location", "keepwatch/") // relative: the path may follow that of another server
			w.WriteHeader(http.StatusFound)
			return
		}
		http.ServeFileFS(w, q, pageFiles, "page/page.css")
		return
	default:
		s.refuse(w, q, u, info, "", notFound("the page has no "+name))
		return
	}
	p := page{Query: parsePageQuery(q.URL.Query())}
	ofAll := p.Query.At == "" && !at.IsNow()
	if ofAll {
		p.Query.At = at.String()
	}
	code := http.StatusOK
	ctx, cancel := context.WithTimeout(q.Context(), s.requestTimeout)
	defer cancel()
	q = q.WithContext(ctx)
	r := &pageRead{server: s, q: q, user: u, query: p.Query, info: info}
	err := s.late(ctx, s.config.History.View(ctx, func(v *history.View) error {
		r.view = v
		return r.fill(&p, ofAll)
	}))
	if !r.logged {
		err = r.log("", err)
	}
	if err != nil {
		status := statusOf(err)
		code, p.Failure = int(status.Code), status.Message
		setRetryAfter(w, status)
		if code == http.StatusInternalServerError { // nothing is shown that is not logged
			p = page{Query: p.Query, Failure: p.Failure}
		}
	}
	var text bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&text, "page.html", p); err != nil {
		klog.ErrorS(err, "The page can't be written")
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // it fails if the client is gone
}

// pageRead is one read of objects for a page.
type pageRead struct {
	server  *Server
	view    *history.View
	q       *http.Request
	user    user.Info
	info    *request.RequestInfo
	types   []history.Type
	typ     history.Type
	objects history.Objects
	query   pageQuery
	logged  bool
}

// fill reads what a page shows. What it has read before an error stays. ofAll is true if the moment of the list is one
// of all types.
func (r *pageRead) fill(p *page, ofAll bool) (err error) {
	if r.types, err = r.view.Types(r.q.Context()); err != nil {
		return err
	}
	for _, t := range r.types {
		p.Types = append(p.Types, t.Resource)
		if t.Resource == p.Query.Type {
			r.typ = t
		}
	}
	if p.Query.Type == "" {
		return nil
	}
	if r.typ.Resource == "" {
		return notFound("the history has no " + p.Query.Type)
	}
	r.objects = history.Objects{Resource: r.typ.Resource, Name: p.Query.Name}
	if r.typ.Namespaced {
		r.objects.Namespace = p.Query.Namespace
	}
	if r.objects.Name != "" && r.objects.Namespace == "" && r.typ.Namespaced {
		return badRequest(errors.New("a name needs a namespace"))
	}
	r.info = r.request()
	if err := r.allowed(r.server.now(), ""); err != nil { // before anything of the history is said
		return err
	}
	timeline, err := r.timeline()
	if err != nil {
		return err
	}
	p.Timeline = draw(timeline, r.query)
	if p.Query.Object != "" {
		if p.Change, err = r.change(timeline); err != nil {
			return err
		}
	}
	if p.Query.At != "" {
		if p.List, err = r.list(ofAll); err != nil {
			return err
		}
	}
	return nil
}

// request returns the request of the API that reads the same: a GET of one object, or a LIST.
func (r *pageRead) request() *request.RequestInfo {
	info := &request.RequestInfo{
		IsResourceRequest: true, Verb: "list", APIGroup: r.typ.Group(), APIVersion: r.typ.Version, Resource: r.typ.Name(),
		Namespace: r.objects.Namespace, Name: r.objects.Name, Path: path.Clean(r.q.URL.Path),
	}
	if info.APIPrefix = "apis"; info.APIGroup == "" {
		info.APIPrefix = "api"
	}
	if info.Name != "" {
		info.Verb = "get"
	}
	return info
}

// allowed returns nil if the user may read the objects as they were at a time. A refusal, and with a moment also the
// read, is logged.
func (r *pageRead) allowed(then time.Time, moment string) error {
	s := r.server
	var err error
	if s.cluster != nil {
		err = s.cluster.allowed(r.q.Context(), r.user, r.info, then)
	}
	if err == nil && moment == "" {
		return nil
	}
	return r.log(moment, err)
}

// log logs a read that is answered, or with an error is not.
func (r *pageRead) log(moment string, refused error) error {
	r.logged = true
	if err := r.server.audit.write(r.q, r.user, r.info, moment, refused); err != nil {
		return unlogged(err)
	}
	return refused
}

// since returns the time since when the namespace of the objects must exist, for a read of them as they were at a
// point, at a time, and up to another point.
func (r *pageRead) since(then time.Time, from, upTo sink.Point) (time.Time, error) {
	if r.server.cluster == nil || r.info.Namespace == "" {
		return then, nil
	}
	ctx, s := r.q.Context(), r.server
	stream, err := r.view.StreamOf(r.objects.Resource, r.objects.Namespace)
	if err != nil {
		return then, err
	}
	today, err := s.cluster.namespace(ctx, r.info.Namespace)
	if err != nil {
		return then, unknownNamespace(r.info.Namespace, err)
	}
	what := &shown{r.objects, stream, from, upTo, then}
	since, decided, err := what.sinceIn(ctx, r.view, r.info.Namespace, today, s.now())
	if err != nil || decided {
		return since, err
	}
	end := s.creations.tryTurn(r.user.GetName()) // without a wait: it has a connection of the database
	if end == nil {
		return then, s.caches.meters.tooMany(boundCreations, "other reads look for the oldest objects of namespaces: try again")
	}
	defer end()
	oldest, err := s.creations.oldest(ctx, r.view, what)
	return existedSince(then, oldest), err
}

// window is how long a timeline is by default.
const window = time.Hour

// timeline reads the timeline of the query, if the user may read the objects of all of it.
func (r *pageRead) timeline() (*history.Timeline, error) {
	from, to, err := r.window()
	if err != nil {
		return nil, err
	}
	t, err := r.view.Timeline(r.q.Context(), r.objects, from, to, maxLanes, (drawingRight-drawingLeft)/markWidth)
	if err != nil {
		return nil, err
	}
	if !t.From.Before(t.To) {
		return nil, badRequest(fmt.Errorf("the timeline ends at %s, and must begin before that",
			t.To.UTC().Format(time.RFC3339)))
	}
	since, err := r.since(t.From, t.After, t.UpTo)
	if err != nil {
		return nil, err
	}
	err = r.allowed(since, fmt.Sprintf("revision=%d/%d, time=%s/%s", t.After.Revision, t.UpTo.Revision,
		t.From.UTC().Format(time.RFC3339), t.To.UTC().Format(time.RFC3339)))
	if apierrors.IsForbidden(err) {
		err = statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
			err.Error()+"; if the namespace was created after the timeline's beginning, choose a later one")
	}
	return t, err
}

// window returns the moments of the timeline.
func (r *pageRead) window() (from, to history.Moment, err error) {
	stream, err := r.view.StreamOf(r.objects.Resource, r.objects.Namespace)
	if err != nil {
		return from, to, notFound(err.Error())
	}
	now := r.server.now()
	if r.query.To != "" {
		if to, err = history.ParseMoment(r.query.To, now); err != nil {
			return from, to, badRequest(err)
		}
	}
	if r.query.From != "" {
		if from, err = history.ParseMoment(r.query.From, now); err != nil {
			return from, to, badRequest(err)
		}
		return from, to, nil
	}
	end, err := r.end(r.q.Context(), to, stream.Time)
	return history.Moment{Time: end.Add(-window)}, to, err
}

// end returns the time of a moment that is not known to be one of the history.
func (r *pageRead) end(ctx context.Context, m history.Moment, newest time.Time) (time.Time, error) {
	switch {
	case m.IsNow():
		return newest, nil
	case m.Revision == 0:
		return m.Time, nil
	}
	stream, err := r.view.StreamOf(r.objects.Resource, r.objects.Namespace)
	if err != nil {
		return newest, err
	}
	points, err := r.view.Points(ctx, m, true, stream)
	if err != nil {
		return newest, err
	}
	return points.Time, nil
}
