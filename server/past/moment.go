package past

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// momentPath is a path that begins with a moment.
type momentPath struct {
	moment history.Moment
	speed  float64 // of a watch
	path   string  // behind the moment
	query  string  // without speed
}

// parsePath parses the address of a request.
func (s *Server) parsePath(address *url.URL) (*momentPath, error) {
	rest, ok := strings.CutPrefix(address.Path, "/at/")
	if !ok {
		return nil, notFound(
			"the paths of this server begin with a moment: /at/2026-11-28T10:42:00Z, /at/10:42, /at/-15m, /at/revision/4711 or /at/now")
	}
	text, rest, _ := strings.Cut(rest, "/")
	if text == "revision" {
		var number string
		number, rest, _ = strings.Cut(rest, "/")
		text += "/" + number
	}
	p := &momentPath{speed: 1}
	var err error
	if p.moment, err = history.ParseMoment(text, s.now()); err != nil {
		return nil, badRequest(err)
	}
	query := address.Query()
	speed := query.Get("speed")
	if number, ok := strings.CutPrefix(rest, "speed/"); ok {
		speed, rest, _ = strings.Cut(number, "/")
	}
	if speed != "" {
		// NaN is neither
		if p.speed, err = strconv.ParseFloat(speed, 64); err != nil || !(p.speed >= 0 && p.speed <= history.MaxSpeed) {
			return nil, badRequest(fmt.Errorf("speed %q: give a number from 0, which is as fast as possible, to %d", speed,
				int(history.MaxSpeed)))
		}
	}
	query.Del("speed")
	p.path, p.query = "/"+rest, query.Encode()
	return p, nil
}

// resolved is the resource and the point that a request is for.
type resolved struct {
	resource schema.GroupVersionResource
	typ      history.Type
	format   *format
	stream   sink.Status
	point    sink.Point
	mark     history.Mark // of the point
	time     time.Time    // of the point, or of the moment of the address if the point is that one
	// addressed is the time of the moment of the address.
	addressed time.Time
	// since is the time since when the namespace must exist, if a cluster is asked about the right.
	since   time.Time
	warning string
	inGap   bool // the moment is in one, and answered nevertheless
	watch   bool
	started chan struct{} // closed when the watch has begun: before that, the past stands still
	newest  bool          // the moment is now
	speed   float64
	table   tableSource
	tables  *tables
}

// tableTime returns the time that the ages of Tables are relative to, zero for now: also in a watch, which goes on.
func (r *resolved) tableTime() time.Time {
	if r.newest || r.watch {
		return time.Time{}
	}
	return r.time.Truncate(time.Second)
}

// header returns what the header Keepwatch-Moment says.
func (r *resolved) header() string {
	text := "revision=" + r.point.Revision.String()
	if r.point.Epoch > 0 {
		text += fmt.Sprintf(", epoch=%d", r.point.Epoch)
	}
	if !r.time.IsZero() {
		text += ", time=" + r.time.UTC().Format(time.RFC3339Nano)
	}
	switch { // kind, scope and columns are not known to be those of the moment
	case r.typ.Assumed:
		text += ", type=assumed"
	case !r.time.IsZero() && r.typ.Seen.After(r.time):
		text += ", type=later"
	}
	return text
}

// resolve finds the resource and the point of a request.
func (s *Server) resolve(q *http.Request, info *request.RequestInfo, p *momentPath) (found *resolved, err error) {
	named, err := namedIn(q, info)
	if err != nil {
		return nil, badRequest(err)
	}
	group := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	found = &resolved{
		resource: group.WithVersion(info.APIVersion), watch: info.Verb == "watch", speed: p.speed,
		tables: s.tables, started: make(chan struct{}),
	}
	if p.moment.IsNow() { // what was stored since the client's resourceVersion is late already
		found.speed = 0
	}
	var today liveNamespace
	decided := s.cluster == nil // since when the namespace must exist
	if !decided && info.Namespace != "" {
		if today, err = s.cluster.namespace(q.Context(), info.Namespace); err != nil {
			return nil, unknownNamespace(info.Namespace, err)
		}
	}
	var what *shown
	err = s.config.History.View(q.Context(), func(v *history.View) error {
		if found.stream, err = v.StreamOf(group.String(), info.Namespace); err != nil {
			return notFound(err.Error())
		}
		moment, located := v.In(q.Context(), p.moment, found.stream)
		switch {
		case named.revision > 0:
			if errors.As(located, new(*history.Unknown)) { // what the request names may be known
				moment, located = history.Moment{}, nil
			}
			if located == nil {
				located = found.locateNamed(q.Context(), v, moment, named, s.config.AllowGaps)
			}
		case located == nil:
			located = found.locate(q.Context(), v, moment, s.config.AllowGaps)
		}
		t, err := v.TypeAt(q.Context(), group.String(), found.time) // the newest, if the moment is not known
		if err == nil && t != nil && t.Version != info.APIVersion { // a watch may have continued behind the type's change
			t, err = v.TypeAt(q.Context(), group.String(), found.addressed)
		}
		if err != nil {
			return err
		}
		if t == nil || t.Version != info.APIVersion || t.Kind == "" {
			return notFound(fmt.Sprintf("the history has no %s of version %s", group, info.APIVersion))
		}
		if located != nil {
			return located
		}
		found.typ, found.format = *t, s.tables.format(*t)
		if found.table, err = s.tables.source(q.Context(), v, found); err != nil || s.cluster == nil {
			return err
		}
		if found.since, decided = found.time, info.Namespace == ""; decided {
			return nil
		}
		what = found.shown(info)
		found.since, decided, err = what.sinceIn(q.Context(), v, info.Namespace, today, s.now())
		return err
	})
	if err == nil && !decided {
		u, _ := request.UserFrom(q.Context())
		found.since, err = s.sinceOldest(q.Context(), u, what, found.watch)
	}
	return found, momentError(err)
}

// shown returns what a request in a namespace shows.
func (r *resolved) shown(info *request.RequestInfo) *shown {
	all := &shown{of: history.Objects{Resource: r.resource.GroupResource().String(), Name: info.Name}, stream: r.stream,
		from: r.point, upTo: r.point, then: r.time}
	if r.typ.Namespaced {
		all.of.Namespace = info.Namespace
	}
	if r.watch {
		all.upTo = sink.Point{Epoch: r.stream.Progress.Epoch, Revision: r.stream.Progress.Cursor}
	}
	return all
}

// momentError returns the API's error of a moment that is not known, and any other error as it is.
func momentError(err error) error {
	if unknown, ok := errors.AsType[*history.Unknown](err); ok {
		return gone(unknown)
	}
	return err
}

// locate finds the point of a moment.
func (r *resolved) locate(ctx context.Context, v *history.View, m history.Moment, allowGaps bool) error {
	points, err := v.PointsOf(ctx, m, false, r.stream)
	if r.mayBeIn(err, allowGaps) {
		points, err = v.PointsOf(ctx, m, true, r.stream)
	}
	if err != nil {
		return err
	}
	r.newest, r.addressed = m.IsNow(), points.Time
	r.set(v, points.Of(r.stream), points.Time)
	return nil
}

// mayBeIn reports whether an error is that of a moment in a gap, and gaps are allowed. The answer then has a warning.
func (r *resolved) mayBeIn(err error, allowGaps bool) bool {
	unknown, ok := errors.AsType[*history.Unknown](err)
	if !ok || unknown.Gap == nil || !allowGaps {
		return false
	}
	r.warning, r.inGap = unknown.Error(), true
	return true
}

func (r *resolved) set(v *history.View, at sink.Point, seen time.Time) {
	r.point, r.time = at, seen
	r.mark = v.Mark(r.stream, r.point)
	if s := r.stream.ID; s.LabelSelector != "" || s.FieldSelector != "" {
		r.warning = strings.TrimSpace(fmt.Sprintf("%s the history has only the %s", r.warning, s))
	}
}

// locateNamed finds the point of a revision that a request names itself, at a moment.
func (r *resolved) locateNamed(ctx context.Context, v *history.View, m history.Moment, named named,
	allowGaps bool) error {
	points, err := v.PointsOf(ctx, m, true, r.stream)
	if err != nil {
		return err
	}
	near := points.Of(r.stream)
	r.addressed = points.Time
	at, err := v.Named(ctx, r.stream, near, named.revision, named.page)
	if err != nil {
		return err
	}
	if at == near { // with the moment's time
		if err := r.locate(ctx, v, m, allowGaps); !errors.As(err, new(*history.Unknown)) {
			return err
		}
	}
	if err := v.Check(ctx, r.stream, at); err != nil && !r.mayBeIn(err, allowGaps) {
		return err
	}
	seen, err := v.SeenAt(ctx, r.stream, at)
	if err != nil {
		return err
	}
	r.set(v, at, seen)
	return nil
}

// named is a revision of its resource that a request names itself: that of the page before or of an exact read, or that
// after which a watch continues. It is 0 without one.
type named struct {
	revision keepwatch.Revision
	page     bool
}

func namedIn(q *http.Request, info *request.RequestInfo) (n named, err error) {
	query := q.URL.Query()
	if token := query.Get("continue"); token != "" && info.Verb == "list" {
		_, revision, err := apistorage.DecodeContinue(token, "/")
		if err != nil || revision <= 0 {
			return n, errors.New("the continue token is not valid")
		}
		return named{keepwatch.Revision(revision), true}, nil
	}
	exact := info.Verb == "list" && query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact)
	if version := query.Get("resourceVersion"); version != "" && version != "0" && (exact || info.Verb == "watch") {
		n.revision, err = keepwatch.ParseRevision(version)
	}
	return n, err
}

// simplify removes from a request what asks for the form of the answer, and is no part of what is answered: pretty
// printing, and Tables with more than metadata.
func simplify(q *http.Request) {
	query := q.URL.Query()
	query.Set("pretty", "false") // curl asks for it by its name
	if include := query.Get("includeObject"); include != "" {
		query.Set("includeObject", string(metav1.IncludeMetadata))
	}
	q.URL.RawQuery = query.Encode()
}
