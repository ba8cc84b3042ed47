package differential

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// answers are one of each kind that a server gives.
var answers = map[string]Answer{
	"list": {
		Status: 200, Header: http.Header{"Content-Type": {"application/json"}, "Audit-Id": {"1"}},
		Body: []byte(
			`{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}` + "\n"),
	},
	"table": {
		Status: 200, Header: http.Header{"Content-Type": {"application/json"}},
		Body: []byte(
			`{"kind":"Table","metadata":{},"columnDefinitions":[{"name":"Age","description":"\"theirs\""}],"rows":[{"cells":["a","17s"]}]}` + "\n"),
	},
	"refusal": {
		Status: 504, Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"1"}},
		Body: []byte(
			`{"kind":"Status","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1},"code":504}` + "\n"),
	},
	"watch": {
		Status: 200, Header: http.Header{"Content-Type": {"application/json"}},
		Body: []byte(strings.Join([]string{
			`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"3"}}}`,
			`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4"}}}`,
			`{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"5"}}}`,
			`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
		}, "\n") + "\n"),
	},
	"expired": {
		Status: 200, Header: http.Header{"Content-Type": {"application/json"}},
		Body: []byte(
			`{"type":"ERROR","object":{"kind":"Status","message":"too old resource version: 3 (9)","reason":"Expired","code":410}}` + "\n"),
	},
}

// streamed is an answer as Side reads it.
func streamed(t *testing.T, name string, a Answer) (Request, Answer) {
	r := Request{Path: "/api/v1/pods", Options: url.Values{}, Stream: name == "watch" || name == "expired"}
	if r.Stream {
		var err error
		if a.Events, err = events("application/json", a.Body); err != nil {
			t.Fatal(err)
		}
		a.Streamed = true
	}
	return r, a
}

func TestEachAlterationIsNoticed(t *testing.T) {
	for _, test := range []struct{ answer, old, new, where string }{
		{"list", `"b"`, `"c"`, "body .items[].metadata.name"},
		{"list", `,{"metadata":{"name":"b"}}`, ``, "body .items (length)"},
		{"list", `"continue":"x"`, `"continue":"y"`, "body .metadata.continue"},
		{"list", `,"continue":"x"`, ``, "body .metadata.continue"},
		{"list", `{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}`, `{"metadata":{"name":"b"}},{"metadata":{"name":"a"}}`,
			"body .items[].metadata.name"},
		{"list", `"kind":"PodList",`, `"kind": "PodList",`, "bytes of an equal value"},
		{"list", "}\n", "}", "bytes of an equal value"},
		{"list", `]}`, `]`, "bytes"},
		{"table", `"a"`, `"b"`, "body .rows[].cells[]"},
		{"table", `"Age"`, `"Older"`, "body .columnDefinitions[].name"},
		{"refusal", `"retryAfterSeconds":1`, `"retryAfterSeconds":2`, "body .details.retryAfterSeconds"},
		{"refusal", `ResourceVersionTooLarge`, `Other`, "body .details.causes[].reason"},
		{"watch", `"type":"DELETED"`, `"type":"MODIFIED"`, "events: DELETED or MODIFIED"},
		{"watch", `"name":"a","resourceVersion":"5"`, `"name":"a","resourceVersion":"3"`,
			"events: DELETED body .metadata.resourceVersion"},
		{"watch", `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n", ``, "events: ours ends before BOOKMARK"},
		{"watch", `"resourceVersion":"5","annotations"`, `"resourceVersion":"4","annotations"`,
			"events: BOOKMARK body .metadata.resourceVersion"},
		{"expired", `version: 3`, `version: 4`, "events: ERROR body .message"},
		{"expired", `"reason":"Expired"`, `"reason":"Gone"`, "events: ERROR body .reason"},
	} {
		r, theirs := streamed(t, test.answer, answers[test.answer])
		altered := answers[test.answer]
		altered.Body = []byte(strings.Replace(string(altered.Body), test.old, test.new, 1))
		_, ours := streamed(t, test.answer, altered)
		got := ServeBesideKubernetes().Compare(r, theirs, ours)
		if len(got) != 1 || got[0].Where != test.where {
			t.Errorf("%s with %s for %s: %+v, want one at %q", test.answer, test.new, test.old, got, test.where)
		}
	}
}

func TestHeadsAreCompared(t *testing.T) {
	r, theirs := streamed(t, "refusal", answers["refusal"])
	for where, alter := range map[string]func(*Answer){
		"status 504, ours 500": func(a *Answer) { a.Status = 500 },
		"header Retry-After":   func(a *Answer) { a.Header.Set("Retry-After", "2") },
		"header Content-Type":  func(a *Answer) { a.Header.Set("Content-Type", "application/yaml") },
		"header Vary":          func(a *Answer) { a.Header.Set("Vary", "Accept") },
		"end":                  func(a *Answer) { a.Incomplete = "unexpected EOF" },
	} {
		ours := theirs
		ours.Header = theirs.Header.Clone()
		alter(&ours)
		if got := ServeBesideKubernetes().Compare(r, theirs, ours); len(got) != 1 || got[0].Where != where {
			t.Errorf("%+v, want one difference: %s", got, where)
		}
	}
}

func TestOrderIsToldFromContent(t *testing.T) {
	r, theirs := streamed(t, "watch", answers["watch"])
	_, ours := streamed(t, "watch", answers["watch"])
	ours.Events[0], ours.Events[2] = ours.Events[2], ours.Events[0]
	if got := ServeBesideKubernetes().Compare(r, theirs, ours); len(got) != 1 || got[0].Where != "events: order" {
		t.Errorf("%+v", got)
	}
}

// Values that two servers cannot have in common are no difference.
func TestMasks(t *testing.T) {
	for _, test := range []struct{ answer, old, new string }{
		{"table", `"17s"`, `"2m3s"`},
		{"table", `\"theirs\"`, `ours`},
		{"watch", `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4"}}}` + "\n", ``},
		{"expired", `(9)`, `(7)`},
	} {
		r, theirs := streamed(t, test.answer, answers[test.answer])
		altered := answers[test.answer]
		altered.Body = []byte(strings.Replace(string(altered.Body), test.old, test.new, 1))
		_, ours := streamed(t, test.answer, altered)
		ours.Header = ours.Header.Clone()
		ours.Header.Set("Audit-Id", "2")
		if got := ServeBesideKubernetes().Compare(r, theirs, ours); len(got) != 0 {
			t.Errorf("%s with %s for %s: %+v", test.answer, test.new, test.old, got)
		}
	}
	custom := Request{Path: "/apis/" + group + "/v1/widgets"}
	theirs, ours := answers["table"], answers["table"]
	ours.Body = []byte(strings.Replace(string(ours.Body), `\"theirs\"`, `ours`, 1))
	if got := ServeBesideKubernetes().Compare(custom, theirs, ours); len(got) != 1 {
		t.Errorf("the columns of a definition are its author's words: %+v", got)
	}
}

// TestSameVersion: two servers of one version have all words and headers in common, and draw what a dry run
// creates.
func TestSameVersion(t *testing.T) {
	dryRun := Request{Path: "/api/v1/pods", Method: http.MethodPost, Options: url.Values{}}
	deletion := Request{Path: "/api/v1/pods/a", Method: http.MethodDelete, Options: url.Values{}}
	created := Answer{Status: 201, Header: http.Header{},
		Body: []byte(`{"metadata":{"name":"a","uid":"1","creationTimestamp":"2026-01-02T03:04:05Z"}}`)}
	for _, test := range []struct {
		request     Request
		theirs      Answer
		old, new    string
		differences int
	}{
		{Request{Path: "/api/v1/pods"}, answers["table"], `\"theirs\"`, `ours`, 1},
		{Request{Path: "/api/v1/pods"}, answers["table"], `17s`, `18s`, 0},
		{dryRun, created, `"uid":"1"`, `"uid":"2"`, 0},
		{dryRun, created, `04:05Z`, `04:06Z`, 0},
		{dryRun, created, `"name":"a"`, `"name":"b"`, 1},
		{Request{Path: "/api/v1/pods/a"}, created, `"uid":"1"`, `"uid":"2"`, 1},
		{deletion, created, `"uid":"1"`, `"uid":"2"`, 1},
	} {
		ours := test.theirs
		ours.Body = []byte(strings.Replace(string(ours.Body), test.old, test.new, 1))
		if got := SameVersion().Compare(test.request, test.theirs, ours); len(got) != test.differences {
			t.Errorf("%s for %s: %+v", test.new, test.old, got)
		}
	}
	ours := answers["list"]
	ours.Header = ours.Header.Clone()
	ours.Header.Set("Audit-Id", "2")
	ours.Header.Set("X-Kubernetes-Pf-Flowschema-Uid", "x")
	if got := SameVersion().Compare(Request{Path: "/api/v1/pods"}, answers["list"], ours); len(got) != 1 ||
		got[0].Where != "header X-Kubernetes-Pf-Flowschema-Uid" {
		t.Errorf("%+v", got)
	}
}

// TestEventsAsCBOR decodes events as Kubernetes encodes them: texts are byte strings.
func TestEventsAsCBOR(t *testing.T) {
	one := "\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object\xa1\x44name\x41x"
	all, err := events(cborSequence, []byte(one+one))
	if err != nil || len(all) != 2 || all[1].Type != "ADDED" || string(all[1].Frame) != one ||
		string(all[1].Object) != "\xa1\x44name\x41x" {
		t.Errorf("%q, %v", all, err)
	}
}

func TestTornStreams(t *testing.T) {
	for media, bodies := range map[string][]string{
		"application/json": {`{"type":"ADDED"`, "{\"type\":\"ADDED\",\"object\":{}}\n{", "nonsense\n"},
		cborSequence:       {"\xd9\xd9", "\xd9\xd9\xf7\xa1\x44type", "\xff"},
		protobufType:       {"\x00", "\x00\x00\x00\x09abc", "\x00\x00\x00\x02\xff\xff"},
	} {
		for _, body := range bodies {
			if _, err := events(media, []byte(body)); err == nil {
				t.Errorf("%q is taken for a stream of %s", body, media)
			}
		}
	}
}

// TestMaskOfExpiredInProtobuf: the texts of two servers have numbers of other lengths, and protobuf says how long they
// are.
func TestMaskOfExpiredInProtobuf(t *testing.T) {
	var masked []string
	for _, text := range []string{"too old resource version: 624 (999)", "too old resource version: 624 (1000)"} {
		expired := &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}}
		status := metav1.Status{Status: metav1.StatusFailure, Message: text, Reason: metav1.StatusReasonExpired,
			Code: http.StatusGone}
		var err error
		if expired.Raw, err = status.Marshal(); err != nil {
			t.Fatal(err)
		}
		body, err := expired.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		masked = append(masked, string(SameVersion().maskBody(Request{}, body)))
	}
	if masked[0] != masked[1] {
		t.Errorf("%q differs from %q", masked[0], masked[1])
	}
}
