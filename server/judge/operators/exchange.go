package operators

import (
	"bytes"
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
	x.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(w), x.q)
	x.answered(w)
}

// answered records the answer.
func (x exchange) answered(w *statusWriter) {
	x.t.answered(x.record, w.status)
	if w.status/100 != 2 || x.record.Subresource != "" {
		return
	}
	if x.record.Verb == "delete" {
		x.t.deleted(x.record, infoOf(x.q).Name)
	}
	if o := w.object(); o != nil {
		x.t.wrote(x.record, o)
	}
}

// execute executes it, and drops the answer.
func (x exchange) execute() {
	w := &statusWriter{ResponseWriter: &lostResponse{http.Header{}}, status: http.StatusOK}
	x.next.ServeHTTP(w, x.q)
	x.answered(w)
}

// abort ends the connection or the stream without an answer.
func (x exchange) abort() { panic(http.ErrAbortHandler) }

// refuse answers it without executing it.
func (x exchange) refuse(status int) {
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
	default:
		answer = apierrors.NewInternalError(errors.New("etcdserver: request timed out")).ErrStatus
	}
	answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_ = json.NewEncoder(x.w).Encode(answer) // a client that is gone needs no answer
	x.t.answered(x.record, status)
}

// statusWriter records the status of a response, and its body.
type statusWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer // at most maxBody bytes
}

func (w *statusWriter) Write(b []byte) (int, error) {
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

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// lostResponse is a response that nobody receives.
type lostResponse struct{ header http.Header }

func (l *lostResponse) Header() http.Header         { return l.header }
func (l *lostResponse) Write(b []byte) (int, error) { return len(b), nil }
func (l *lostResponse) WriteHeader(int)             {}
