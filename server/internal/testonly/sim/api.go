package sim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// things is the resource of the simulated objects.
var things = schema.GroupVersionResource{Group: "sim.keepwatch", Version: "v1", Resource: "things"}

// api serves a source as a Kubernetes API over HTTP. It sends the source's failures as
// statuses, broken connections and undecodable data, which the client must classify. It is a
// transport: it runs only in the calls of its client.
type api struct{ source keepwatch.Source }

func (a api) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	floor, _ := keepwatch.ParseRevision(q.Get("resourceVersion"))
	var b *body
	var err error
	switch {
	case r.URL.Path == "/version" || r.URL.Path == "/openapi/v3" ||
		strings.HasPrefix(r.URL.Path, "/apis/apiextensions.k8s.io/"):
		return answer(r, http.StatusNotFound, http.NoBody), nil // a client asks at random times
	case q.Get("sendInitialEvents") == "true":
		b, err = a.stream(r.Context(), floor)
	case q.Get("watch") == "true":
		b = &body{at: floor}
		b.watch, err = a.source.Watch(r.Context(), floor)
	case q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact):
		b, err = a.listAt(r.Context(), floor)
	default:
		b, err = a.list(r.Context(), keepwatch.ListRequest{NotOlderThan: floor, Continue: q.Get("continue"),
			Whole: !q.Has("limit")}, q.Get("limit") == "1")
	}
	if err != nil {
		return refusal(r, err)
	}
	b.done = r.Context().Done()
	return answer(r, http.StatusOK, b), nil
}

func answer(r *http.Request, code int, b io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Content-Type": {"application/json"}}, ContentLength: -1, Body: b, Request: r,
	}
}

// unreadable are the failures of a list that are sent as a list that can't be read.
var unreadable = []keepwatch.FailureKind{keepwatch.Undecodable, keepwatch.ProtocolViolation, keepwatch.Unversioned}

// list answers with a page of the state or, if newest is set, only with a revision.
func (a api) list(ctx context.Context, req keepwatch.ListRequest, newest bool) (*body, error) {
	var page keepwatch.Page
	var err error
	if newest {
		page.Revision, err = a.source.Newest(ctx)
	} else {
		page, err = a.source.List(ctx, req)
	}
	return pageBody(page, err)
}

// listAt answers with the state at exactly one revision.
func (a api) listAt(ctx context.Context, at keepwatch.Revision) (*body, error) {
	page, err := a.source.(interface {
		ListAt(context.Context, keepwatch.Revision) (keepwatch.Page, error)
	}).ListAt(ctx, at)
	return pageBody(page, err)
}

func pageBody(page keepwatch.Page, err error) (*body, error) {
	var failure *keepwatch.Failure
	if errors.As(err, &failure) && slices.Contains(unreadable, failure.Kind) {
		return &body{text: []byte(`{"kind":"ThingList","items":[{"meta`), end: io.EOF}, nil
	}
	about := map[string]any{"resourceVersion": page.Revision.String()}
	if page.Continue != "" {
		about["continue"], about["remainingItemCount"] = page.Continue, page.Remaining
	}
	items := make([]any, 0, len(page.Objects))
	for _, o := range page.Objects {
		items = append(items, thing(o))
	}
	list := map[string]any{"apiVersion": things.GroupVersion().String(), "kind": "ThingList", "metadata": about,
		"items": items}
	return &body{text: text(list), end: io.EOF}, err
}

// stream answers with a streaming list. The answer begins when the list is complete or has
// failed.
func (a api) stream(ctx context.Context, floor keepwatch.Revision) (*body, error) {
	b := &body{}
	at, w, err := a.source.StreamList(ctx, floor, func(objects []keepwatch.Object) error {
		for _, o := range objects {
			b.writeEvent(keepwatch.Added.String(), thing(o))
		}
		return nil
	})
	switch {
	case err == nil:
		b.writeEvent("BOOKMARK", bookmark(at.String(), map[string]any{metav1.InitialEventsAnnotationKey: "true"}))
		b.at, b.watch = at, w
		return b, nil
	case len(b.text) > 0 && kindOf(err) == keepwatch.StreamingListUnsupported:
		b.end = io.EOF
		return b, nil
	}
	return b, err
}

// thing returns an object's JSON value.
func thing(o keepwatch.Object) map[string]any {
	p := plain(o)
	about := map[string]any{
		"name": p.key.Name, "uid": string(p.uid), "resourceVersion": p.revision.String(),
		"labels": map[string]any{"color": p.color, "content": p.content, "definition": strconv.Itoa(p.definition)},
	}
	if p.key.Namespace != "" {
		about["namespace"] = p.key.Namespace
	}
	return map[string]any{"apiVersion": things.GroupVersion().String(), "kind": "Thing", "metadata": about}
}

// object returns the object of a thing.
func object(u *unstructured.Unstructured) *Object {
	revision, _ := keepwatch.ParseRevision(u.GetResourceVersion())
	definition, _ := strconv.Atoi(u.GetLabels()["definition"])
	return &Object{
		definition: definition,
		key:        keepwatch.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, uid: keepwatch.UID(u.GetUID()),
		revision: revision,
		color:    u.GetLabels()["color"], content: u.GetLabels()["content"],
	}
}

func bookmark(revision string, annotations map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": things.GroupVersion().String(), "kind": "Thing",
		"metadata": map[string]any{"resourceVersion": revision, "annotations": annotations},
	}
}

func text(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return b
}

// body is an answer's body: a text, followed by a watch's events if there is a watch.
type body struct {
	text  []byte
	at    keepwatch.Revision // of the watch's last batch
	watch keepwatch.Watch    // nil for none
	end   error              // after text
	done  <-chan struct{}    // of the request
}

func (b *body) Read(p []byte) (int, error) {
	for len(b.text) == 0 && b.end == nil {
		b.next()
	}
	if len(b.text) == 0 {
		return 0, b.end
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

func (b *body) Close() error {
	if b.watch != nil {
		b.watch.Close()
	}
	return nil
}

func (b *body) writeEvent(kind string, object any) {
	b.text = append(append(b.text, text(map[string]any{"type": kind, "object": object})...), '\n')
}

// next reads a batch. Frames have no start revision, so a hole, which a source reports by
// From, is sent as an invalid event.
func (b *body) next() {
	batch, err := b.watch.Next()
	switch {
	case err != nil:
		b.finish(err)
		return
	case batch.From != b.at:
		b.finish(keepwatch.Failed(keepwatch.ProtocolViolation, "a hole"))
		return
	}
	last := batch.From
	for _, c := range batch.Changes {
		b.writeEvent(c.Type.String(), thing(c.Object))
		last = max(last, c.Revision)
	}
	if batch.Bookmark() || batch.To > last {
		b.writeEvent("BOOKMARK", bookmark(batch.To.String(), nil))
	}
	b.at = batch.To
}

// finish ends a watch in the way that shows a failure.
func (b *body) finish(err error) {
	b.end = io.EOF
	switch kind := kindOf(err); kind {
	case keepwatch.Ended:
	case keepwatch.Idle: // the client must detect that
		<-b.done
		b.end = context.Canceled
	case keepwatch.Undecodable:
		b.text = []byte("{\"type\":\"MODIFIED\",\"object\":}\n")
	case keepwatch.ProtocolViolation:
		b.writeEvent("BOOKMARK", bookmark("seven", nil))
	case keepwatch.Expired, keepwatch.ServerError, keepwatch.StorageRead, keepwatch.UnknownStatus:
		b.writeEvent("ERROR", statusOf(err))
	default:
		b.end = syscall.ECONNRESET
	}
}

func kindOf(err error) keepwatch.FailureKind {
	var failure *keepwatch.Failure
	if errors.As(err, &failure) {
		return failure.Kind
	}
	return 0
}

// refusal returns the answer to a request that fails, or a connection's error.
func refusal(r *http.Request, err error) (*http.Response, error) {
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	switch status := statusOf(err); {
	case kindOf(err) == keepwatch.Untrusted:
		return nil, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	case status.Code == 0:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	default:
		resp := answer(r, int(status.Code), &body{text: text(status), end: io.EOF})
		if status.Details != nil && kindOf(err) == keepwatch.Throttled {
			resp.Header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
		}
		return resp, nil
	}
}

// statuses are the servers' statuses of failures. For kinds without one, the connection
// breaks.
var statuses = map[keepwatch.FailureKind]metav1.Status{
	keepwatch.Throttled:                {Code: 429, Reason: metav1.StatusReasonTooManyRequests},
	keepwatch.ServerError:              {Code: 500, Reason: metav1.StatusReasonInternalError},
	keepwatch.StorageRead:              {Code: 500, Reason: metav1.StatusReasonStoreReadError},
	keepwatch.UnknownStatus:            {Code: 418, Reason: "Teapot"},
	keepwatch.Unauthorized:             {Code: 401, Reason: metav1.StatusReasonUnauthorized},
	keepwatch.Forbidden:                {Code: 403, Reason: metav1.StatusReasonForbidden},
	keepwatch.Absent:                   {Code: 404, Reason: metav1.StatusReasonNotFound},
	keepwatch.Rejected:                 {Code: 400, Reason: metav1.StatusReasonBadRequest},
	keepwatch.StreamingListUnsupported: {Code: 422, Reason: metav1.StatusReasonInvalid},
	keepwatch.Expired:                  {Code: 410, Reason: metav1.StatusReasonExpired},
	keepwatch.RevisionTooLarge:         {Code: 504, Reason: metav1.StatusReasonTimeout},
}

func statusOf(err error) metav1.Status {
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) {
		return metav1.Status{}
	}
	s, ok := statuses[failure.Kind]
	if !ok {
		return metav1.Status{}
	}
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	s.Status, s.Message = metav1.StatusFailure, failure.Error()
	if failure.RetryAfter > 0 {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(failure.RetryAfter.Seconds())}
	}
	if failure.Kind == keepwatch.RevisionTooLarge {
		s.Details = &metav1.StatusDetails{
			RetryAfterSeconds: 1, Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}},
		}
	}
	return s
}
