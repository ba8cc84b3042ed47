package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
	"github.com/keepwatch/keepwatch/server/proxy/internal/forward"
	"github.com/keepwatch/keepwatch/server/proxy/internal/personal"
)

// Personal describes personal views: a list or watch over all namespaces that the server refuses to a user is answered
// with the objects of the namespaces in which the server allows it. The proxy's identity then needs [PersonalRules].
type Personal struct {
	// Groups restricts personal views to the users of these groups. There is no restriction if it is empty.
	Groups []string
	// Annotate puts the namespaces into the metadata of lists in JSON, as [readpath.NamespacesAnnotation].
	Annotate bool
}

// PersonalHeader is the header of an answer that is a personal view: "3/40" for 3 of 40 namespaces.
const PersonalHeader = "Keepwatch-Personal-View"

// personalReads answers personal views.
type personalReads struct {
	Personal
	views *personal.Views
}

func newPersonalReads(of *Personal, c *access.Control, registry metrics.KubeRegistry,
	settled time.Duration) *personalReads {
	if of == nil {
		return nil
	}
	views := personal.New(c.Cluster(), c.Reviews(), registry, settled)
	c.OnChanges(views.Recheck, views.Touch, views.Wake)
	return &personalReads{Personal: *of, views: views}
}

// run marks the revisions of what is followed until ctx ends. A nil *personalReads marks nothing.
func (p *personalReads) run(ctx context.Context, followed func() []*follower) {
	for p != nil && pause.For(ctx, p.views.MarkEvery()) == nil {
		for _, f := range followed() {
			if f.format.Namespaced {
				asking, end := context.WithTimeout(ctx, settleWait)
				p.views.Mark(asking, f.resource.GroupResource(), f.source.Newest)
				end()
			}
		}
	}
}

// mayBePersonal reports whether a read can be a personal view. A caller that is not known, nil, may be anybody, and the
// objects of a resource that is not followed may be in namespaces.
func (p *Proxy) mayBePersonal(info *request.RequestInfo, c *access.Caller) bool {
	if p.personal == nil || info.Namespace != "" || info.Verb != "list" && info.Verb != "watch" ||
		p.access.NamespacesRefused() || p.caches.hasNoNamespaces(info) {
		return false
	}
	groups := p.personal.Groups
	inGroup := func(group string) bool { return slices.Contains(c.GetGroups(), group) }
	return len(groups) == 0 || c == nil || slices.ContainsFunc(groups, inGroup)
}

// errPersonalUndecided is the answer while the server does not say what a personal view has.
var errPersonalUndecided = func() *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable("the API server does not decide in which namespaces this is allowed")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}()

// undecided returns a read to be forwarded because of an error of the decision about it, or about its caller. If the
// server may decide it later, since it starts or is busy, what it now refuses over all namespaces may be allowed in
// some: a personal view is unavailable, and not forbidden.
func (p *Proxy) undecided(q *http.Request, info *request.RequestInfo, c *access.Caller, err error) *http.Request {
	if err == nil || !p.mayBePersonal(info, c) || !access.IsUndecided(err) && !p.access.Starts(q.Context()) {
		return q
	}
	return forward.UnlessForbidden(q, errPersonalUndecided)
}

// read returns what a request is answered with, which the caller ends. It is nil if the server shall word its refusal:
// the user may not read in any namespace.
func (p *personalReads) read(ctx context.Context, info *request.RequestInfo,
	c *access.Caller) (*personal.Reading, error) {
	r, err := p.views.Read(personal.Subject{User: c.Info, Resource: resourceOf(info), Verb: info.Verb})
	if err != nil {
		return nil, err
	}
	if has, err := r.Decide(ctx); err != nil || !has {
		r.End()
		return nil, err
	}
	return r, nil
}

// namespaceObjects are the objects that belong to the namespace whose name they have.
var namespaceObjects = schema.GroupResource{Resource: "namespaces"}

// servePersonal answers a read that the server refuses to the user over all namespaces, from those in which it allows
// it. It reports false if the server shall answer.
func (p *Proxy) servePersonal(ctx context.Context, w http.ResponseWriter, q *http.Request, info *request.RequestInfo,
	c *access.Caller) bool {
	if !p.mayBePersonal(info, c) {
		return false
	}
	asked := unindented(q)
	q = withoutTables(asked)
	shown, err := p.personal.read(ctx, info, c)
	switch {
	case errors.Is(err, access.ErrBusy), errors.Is(err, personal.ErrBusy):
		forward.Refuse(w, q, apierrors.NewTooManyRequests(err.Error(), 1))
		return true
	case err != nil:
		forward.Refuse(w, q, errPersonalUndecided)
		return true
	case shown == nil:
		return false
	}
	defer shown.End()
	if err := checkShard(q, info); err != nil {
		forward.Refuse(w, q, err)
		return true
	}
	f, why := p.caches.awaitRequired(q, info)
	switch {
	case f == nil && why == reasonNotReady && p.caches.returns(info):
		w.Header().Set("Retry-After", "1")
		forward.Refuse(w, q,
			apierrors.NewServiceUnavailable(
				"the proxy does not have the objects of this resource in memory now, which it needs for a personal view"))
		return true
	case f == nil, !f.format.Namespaced && resourceOf(info).GroupResource() != namespaceObjects:
		return false
	}
	from := answer{follower: f, reader: f.reader}
	if f.format.Dynamic && isTable(asked, info, true) {
		p.tables.Await(ctx, f.tables)
		if from.table = p.tables.Of(f.tables); from.table != nil {
			q, from.reader = asked, from.table.Reader
		}
	}
	from.shown = shown
	p.servePersonalFrom(from, w, q.WithContext(ctx), info, c)
	return true
}

// servePersonalFrom answers a personal view from a cache.
func (p *Proxy) servePersonalFrom(from answer, w http.ResponseWriter, q *http.Request, info *request.RequestInfo,
	c *access.Caller) {
	f, shown := from.follower, from.shown
	from.left = sync.OnceFunc(f.read(info.Verb == "watch"))
	defer from.left()
	settle(q.Context(), shown, f)
	if err := shown.Open(f.source.Newest); err != nil { // also for a list, which may wait until it is answered
		forward.Refuse(w, q, apierrors.NewTooManyRequests(err.Error(), 1))
		return
	}
	var ctx context.Context
	var end context.CancelFunc
	if info.Verb == "watch" {
		ctx, end = p.access.GuardIdentity(q.Context(), c)
	} else {
		ctx, end = context.WithTimeout(q.Context(), p.requestTimeout)
	}
	defer end()
	has, of := shown.Count()
	w.Header().Add("Vary", "Authorization")
	w.Header().Set(PersonalHeader, fmt.Sprintf("%d/%d", has, of))
	from.note = fmt.Sprintf("personal view: %d of %d namespaces", has, of)
	from.reader = from.reader.Within(shown, p.personal.Annotate)
	p.answer(ctx, w, q, info, from)
}

// settleWait bounds the wait of a list for the first revision from which a watch can continue it.
const settleWait = 3 * time.Second

// settle waits until the cache has reached the first revision that belongs to the set, if that is known. The answer is
// the same without, but a watch from its revision would receive Expired.
func settle(ctx context.Context, shown *personal.Reading, f *follower) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	if floor := shown.Settle(ctx, f.source.Newest); floor > f.reader.Cache().Revision() {
		_ = f.reader.Cache().WaitForRevision(ctx, floor)
	}
}

// unindented returns a request whose answer is not indented, as that of a browser or curl is: the server indents, and
// refuses this one.
func unindented(q *http.Request) *http.Request {
	q = q.Clone(q.Context())
	q.URL.RawQuery = "pretty=false&" + q.URL.RawQuery // the first one counts
	return q
}

// withoutTables returns a request that accepts no Tables, if it accepts anything else: the server makes those that
// memory does not, and refuses this one.
func withoutTables(q *http.Request) *http.Request {
	var rest []string
	for _, accept := range q.Header.Values("Accept") {
		for clause := range strings.SplitSeq(accept, ",") {
			if !strings.Contains(clause, "as=Table") {
				rest = append(rest, strings.TrimSpace(clause))
			}
		}
	}
	if len(rest) == 0 || !wantsMetadata(q) {
		return q
	}
	q = q.Clone(q.Context())
	q.Header.Set("Accept", strings.Join(rest, ","))
	return q
}
