package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/client-go/kubernetes/scheme"
)

// exchange is a write of the operator that was not executed yet.
type exchange struct {
	t      *traffic
	w      http.ResponseWriter
	q      *http.Request
	next   http.Handler
	record *Request
}

// serve executes and answers it.
func (x exchange) serve() {
	w := &statusWriter{ResponseWriter: x.w, status: http.StatusOK}
	x.executeTo(w, responsewriter.WrapForHTTP1Or2(w))
}

// serveLast serves it as the last one before a crash: from its answer on, the operator's other requests wait until
// resume. Before that they do not: its own webhooks may have to admit the write, and to ask something first.
func (x exchange) serveLast() {
	w := &statusWriter{ResponseWriter: x.w, status: http.StatusOK, answers: x.t.holdOthers}
	x.executeTo(w, responsewriter.WrapForHTTP1Or2(w))
	x.t.holdOthers()
}

// execute executes it, and drops the answer.
func (x exchange) execute() {
	w := &statusWriter{ResponseWriter: &lostResponse{http.Header{}}, status: http.StatusOK}
	x.executeTo(w, w)
}

// executeTo executes it, and records the answer.
func (x exchange) executeTo(w *statusWriter, answer http.ResponseWriter) {
	deleted := x.beforeDeletion()
	x.next.ServeHTTP(answer, x.q)
	x.t.answered(x.record, w.status)
	if w.status/100 != 2 || x.record.Subresource != "" {
		return
	}
	deleted()
	if o := w.object(); o != nil {
		x.t.wrote(x.record, o)
	}
}

// beforeDeletion looks at what a deletion meets. The returned function records the deletion.
func (x exchange) beforeDeletion() (deleted func()) {
	if x.record.Verb != "delete" || x.record.Subresource != "" {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.q.Context()), pollBound)
	defer cancel()
	own := x.t.ownNames(x.record.key())
	kept, err := x.t.world.kept(ctx, x.resource(), x.record.Namespace)
	if err != nil {
		return func() {} // the server ends, or the type has no definition any more
	}
	return func() { x.t.deleted(x.record, infoOf(x.q).Name, own, kept) }
}

// resource is the type of the object.
func (x exchange) resource() schema.GroupVersionResource {
	info := infoOf(x.q)
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// abort ends the connection or the stream without an answer.
func (x exchange) abort() { panic(http.ErrAbortHandler) }

// refuse answers it without executing it.
func (x exchange) refuse(status int) {
	x.answer(status)
	x.t.answered(x.record, status)
}

// answer sends an error.
func (x exchange) answer(status int) {
	gr := schema.ParseGroupResource(x.record.Resource)
	var answer metav1.Status
	switch status {
	case http.StatusConflict:
		answer = apierrors.NewConflict(gr, x.record.Name, errors.New("the object has been modified")).ErrStatus
	case http.StatusTooManyRequests:
		answer = apierrors.NewTooManyRequests("the server is busy", 1).ErrStatus
		x.w.Header().Set("Retry-After", "1")
	case http.StatusForbidden:
		answer = apierrors.NewForbidden(gr, x.record.Name, errors.New("the authorizer is not ready")).ErrStatus
	case http.StatusGatewayTimeout:
		answer = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	case http.StatusServiceUnavailable:
		http.Error(x.w, "service unavailable", status)
		return
	default:
		answer = apierrors.NewInternalError(errors.New("etcdserver: request timed out")).ErrStatus
	}
	answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_ = json.NewEncoder(x.w).Encode(answer) // a client that is gone needs no answer
}

// statusWriter records the status of a response, and its body.
type statusWriter struct {
	http.ResponseWriter
	status  int
	body    bytes.Buffer // at most maxBody bytes
	answers func()       // is called before the answer is sent, if it is set
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.begin()
	w.body.Write(b[:min(len(b), maxBody-w.body.Len())])
	return w.ResponseWriter.Write(b)
}

// object returns the object in the body, or nil if it has none that can be read.
func (w *statusWriter) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if bytes.HasPrefix(w.body.Bytes(), []byte("k8s\x00")) {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(w.body.Bytes(), nil, nil)
		if err == nil {
			o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		}
		if err != nil {
			return nil
		}
	} else if json.Unmarshal(w.body.Bytes(), &o.Object) != nil {
		return nil
	}
	if o.GetUID() == "" {
		return nil
	}
	return o
}

func (w *statusWriter) begin() {
	if w.answers != nil {
		w.answers()
	}
}

func (w *statusWriter) WriteHeader(status int) {
	w.begin()
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// lostResponse is a response that nobody receives.
type lostResponse struct{ header http.Header }

func (l *lostResponse) Header() http.Header         { return l.header }
func (l *lostResponse) Write(b []byte) (int, error) { return len(b), nil }
func (l *lostResponse) WriteHeader(int)             {}
