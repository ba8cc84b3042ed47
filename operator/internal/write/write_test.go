package write

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

const fin = "widgets.example.com/finalizer"

func TestRequests(t *testing.T) {
	yes := "yes"
	status := cycle.Path{"status", "op"}
	for _, test := range []struct {
		name        string
		outgoing    Outgoing
		state       string
		subresource bool
		want        []string // "part subresource body"
	}{
		{"nothing", Outgoing{}, `{"metadata": {"uid": "u"}}`, true, nil},
		{
			"what a handler wants, then that it is done",
			Outgoing{Edits: cycle.Edits{Annotations: map[string]*string{"p/a": &yes, "p/b": nil}},
				Merge:  parse(t, `{"spec": {"x": 1}, "metadata": {"annotations": {"mine": "1"}}}`),
				Status: parse(t, `{"phase": "Ready"}`)},
			`{"metadata": {"uid": "u", "resourceVersion": "7"}}`, true,
			[]string{
				`1 status {"metadata":{"resourceVersion":"7"},"status":{"phase":"Ready"}}`,
				`2  {"metadata":{"annotations":{"mine":"1","p/a":"yes","p/b":null},"uid":"u"},"spec":{"x":1}}`,
			},
		},
		{
			"one request where the status has no endpoint",
			Outgoing{Edits: cycle.Edits{Annotations: map[string]*string{"p/a": &yes}}, Status: parse(t, `{"phase": "Ready"}`)},
			`{"metadata": {"uid": "u"}}`, false,
			[]string{`2  {"metadata":{"annotations":{"p/a":"yes"},"uid":"u"},"status":{"phase":"Ready"}}`},
		},
		{
			"progress in the status goes last",
			Outgoing{Edits: cycle.Edits{Status: status, Fields: map[string]any{"gone": nil, "handled": "{}"},
				Annotations: map[string]*string{"p/a": &yes}}, Status: parse(t, `{"phase": "Ready"}`)},
			`{"metadata": {"uid": "u", "resourceVersion": "7"}}`, true,
			[]string{
				`2  {"metadata":{"annotations":{"p/a":"yes"},"uid":"u"}}`,
				`1 status {"metadata":{"resourceVersion":"7"},"status":{"op":{"gone":null,"handled":"{}"},"phase":"Ready"}}`,
			},
		},
		{
			"the first finalizer",
			Outgoing{Edits: cycle.Edits{Finalizer: cycle.AddFinalizer}},
			`{"metadata": {"uid": "u", "resourceVersion": "7"}}`, true,
			[]string{`3  [{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/metadata/finalizers","value":["` + fin + `"]}]`},
		},
		{
			"one more finalizer",
			Outgoing{Edits: cycle.Edits{Finalizer: cycle.AddFinalizer}},
			`{"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["other"]}}`, true,
			[]string{`3  [{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/metadata/finalizers/-","value":"` + fin + `"}]`},
		},
		{
			"the finalizer goes, and the notes with it",
			Outgoing{Edits: cycle.Edits{Finalizer: cycle.RemoveFinalizer, Annotations: map[string]*string{"p/a~": nil,
				"p/never": nil}}},
			`{"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["other", "` + fin +
				`"], "annotations": {"p/a~": "x"}}}`, true,
			[]string{`3  [{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/metadata/annotations/p~1a~0"},{"op":"remove","path":"/metadata/finalizers/1"}]`},
		},
		{
			"the finalizer goes after a status without an endpoint",
			Outgoing{Edits: cycle.Edits{Finalizer: cycle.RemoveFinalizer, Annotations: map[string]*string{"p/a": nil}},
				Status: parse(t, `{"x": 1}`)},
			`{"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["` + fin + `"], "annotations": {"p/a": "x"}}}`,
			false,
			[]string{
				`2  {"metadata":{"uid":"u"},"status":{"x":1}}`,
				`3  [{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/metadata/annotations/p~1a"},{"op":"remove","path":"/metadata/finalizers/0"}]`,
			},
		},
		{
			"the finalizer goes after what a handler wants",
			Outgoing{Edits: cycle.Edits{Finalizer: cycle.RemoveFinalizer, Annotations: map[string]*string{"p/a": nil}},
				Merge: parse(t, `{"spec": {"x": 1}}`)},
			`{"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["` + fin + `"], "annotations": {"p/a": "x"}}}`,
			true,
			[]string{
				`2  {"metadata":{"annotations":{"p/a":null},"uid":"u"},"spec":{"x":1}}`,
				`3  [{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/metadata/finalizers/0"}]`,
			},
		},
	} {
		on := Object{State: parse(t, test.state), Finalizer: fin, Subresource: test.subresource}
		requests, err := test.outgoing.Requests(on)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got []string
		left := test.outgoing
		for _, r := range requests {
			got = append(got, string('0'+rune(r.Part))+" "+r.Subresource+" "+string(r.Body))
			left = left.Without(r.Part, on)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
		if again, _ := left.Requests(on); len(again) > 0 || !left.Empty() {
			t.Errorf("%s: when all is taken, %v is left", test.name, again)
		}
	}
}

// A server or a webhook that accepts a request and drops progress is noticed.
func TestProgressThatIsDropped(t *testing.T) {
	text := "{}"
	out := Outgoing{Edits: cycle.Edits{Annotations: map[string]*string{"a": &text, "b": nil}}}
	fields := Outgoing{Edits: cycle.Edits{Fields: map[string]any{"a": "{}"}, Status: cycle.Path{"status"}}}
	with := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "{}"}},
		"status": map[string]any{"a": "{}"}}
	for _, test := range []struct {
		of     Outgoing
		part   Part
		answer map[string]any
		want   bool
	}{
		{out, MergePart, with, true},
		{out, MergePart, nil, false},
		{out, StatusPart, nil, true}, // the annotations follow
		{fields, StatusPart, with, true},
		{fields, StatusPart, nil, false},
		{fields, MergePart, nil, true},
	} {
		if stored := test.of.Stored(test.part, Object{Subresource: true}, test.answer); stored != test.want {
			t.Errorf("%+v, part %d, %v: %t", test.of, test.part, test.answer, stored)
		}
	}
}

func TestAnswers(t *testing.T) {
	message := func(code int32, text string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: text}}
	}
	answer := func(code int, after int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code),
			Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: after}}}
	}
	invalid := func(message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: message, Details: &metav1.StatusDetails{Kind: "widgets", Causes: causes},
		}}
	}
	notApplied := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "",
		"testing value /metadata/resourceVersion failed", 0, false) // as the handler of patches makes it
	for _, test := range []struct {
		err         error
		merge, json Verdict
	}{
		{notApplied, Rejected, Stale},
		{invalid("a proxy's page", metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse}), Rejected, Stale},
		{invalid("", metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.size"}), Rejected, Rejected},
		{invalid("ValidatingAdmissionPolicy 'p' denied request: no", metav1.StatusCause{Message: "no"}), Rejected, Rejected},
		{invalid(`admission webhook "w.example.com" denied the request: no`), Rejected, Rejected},
		{nil, Accepted, Accepted},
		{errors.New("connection refused"), Retry, Retry},
		{answer(http.StatusNotFound, 0), Missing, Missing},
		{answer(http.StatusGone, 0), Missing, Missing},
		{answer(http.StatusConflict, 0), Stale, Stale},
		{answer(http.StatusUnprocessableEntity, 0), Rejected, Stale},
		{answer(http.StatusBadRequest, 0), Rejected, Rejected},
		{answer(http.StatusForbidden, 0), Rejected, Rejected},
		{answer(http.StatusRequestEntityTooLarge, 0), Rejected, Rejected},
		{answer(http.StatusUnauthorized, 0), Retry, Retry},
		{answer(http.StatusTooManyRequests, 0), Retry, Retry},
		{answer(http.StatusInternalServerError, 0), Retry, Retry},
		{answer(http.StatusServiceUnavailable, 0), Retry, Retry},
		{message(http.StatusInternalServerError, "etcdserver: request is too large"), Rejected, Rejected},
		{message(http.StatusInternalServerError,
			"rpc error: code = ResourceExhausted desc = trying to send message larger than max (3000000 vs. 2097152)"), Rejected,
			Rejected},
	} {
		if v, _ := Judge(types.MergePatchType, test.err); v != test.merge {
			t.Errorf("%v to a merge patch: %v, want %v", test.err, v, test.merge)
		}
		if v, _ := Judge(types.JSONPatchType, test.err); v != test.json {
			t.Errorf("%v to a JSON patch: %v, want %v", test.err, v, test.json)
		}
	}
	other := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity,
		Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"}},
		}}}
	if v, _ := Judge(types.MergePatchType, other); v != Gone {
		t.Errorf("another object of its name: %v, want %v", v, Gone)
	}
	if _, wait := Judge(types.MergePatchType, answer(http.StatusTooManyRequests, 7)); wait != 7*time.Second {
		t.Errorf("the server asked for 7 s, and gets %v", wait)
	}
}

func TestRejection(t *testing.T) {
	say := func(code int32, message string, causes ...metav1.StatusCause) string {
		return Rejection(&apierrors.StatusError{ErrStatus: metav1.Status{
			Code: code, Reason: metav1.StatusReasonInvalid, Message: message, Details: &metav1.StatusDetails{Causes: causes},
		}})
	}
	size := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.size", Message: "9999: too much"}
	more := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.size", Message: "10000: too much"}
	color := metav1.StatusCause{Type: metav1.CauseTypeFieldValueRequired, Field: "spec.color"}
	missing := metav1.StatusCause{Type: metav1.CauseTypeFieldValueRequired, Field: "spec.size"}
	if a, b := say(422, "at 12:01", size, color), say(422, "at 12:02", color, more, size); a != b {
		t.Errorf("other words are another complaint: %s and %s", a, b)
	}
	seen := map[string]bool{}
	for _, c := range []string{say(422, ""), say(400, ""), say(422, "", size), say(422, "", color), say(422, "", missing),
		say(422, "", size, color)} {
		if seen[c] {
			t.Errorf("%s is not the complaint of one cause alone", c)
		}
		seen[c] = true
	}
}
