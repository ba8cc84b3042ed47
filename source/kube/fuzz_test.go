package kube

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

const fuzzBound = 1 << 16

// wantPlausible checks that a failure has a kind that a text can cause.
func wantPlausible(t *testing.T, failure *keepwatch.Failure, kinds ...keepwatch.FailureKind) {
	t.Helper()
	if failure.Err == nil || failure.Error() == "" || failure.RetryAfter < 0 || failure.RetryAfter > maxRetryAfter {
		t.Errorf("failure %+v", failure)
	}
	if len(kinds) > 0 && !slices.Contains(kinds, failure.Kind) {
		t.Errorf("failure is %v (%v), want one of %v", failure.Kind, failure, kinds)
	}
}

// wantObject checks the invariants of every object.
func wantObject(t *testing.T, object keepwatch.Object) {
	t.Helper()
	o := object.(*Object)
	if o.Key().Name == "" || o.Revision() == 0 || len(o.JSON()) > 2*fuzzBound {
		t.Errorf("object %v at %v of %d bytes", o.Key(), o.Revision(), len(o.JSON()))
	}
	for _, text := range [][]byte{o.JSON(), o.Metadata()} {
		if !json.Valid(text) || bytes.IndexByte(text, '\n') >= 0 {
			t.Errorf("text is %q", text)
		}
	}
	// Members may be duplicate; the last one counts, as in the standard library.
	var tree map[string]json.RawMessage
	var metadata map[string]json.RawMessage
	var name, revision string
	json.Unmarshal(o.JSON(), &tree)
	json.Unmarshal(tree["metadata"], &metadata)
	json.Unmarshal(metadata["name"], &name)
	json.Unmarshal(metadata["resourceVersion"], &revision)
	if name != o.Key().Name || revision != o.Revision().String() {
		t.Errorf("object %v at %v of %s", o.Key(), o.Revision(), o.JSON())
	}
	var small map[string]json.RawMessage
	json.Unmarshal(o.Metadata(), &tree)
	json.Unmarshal(tree["metadata"], &small)
	if len(small) > len(metadata) || string(small["name"]) != string(metadata["name"]) {
		t.Errorf("metadata is %s of %s", o.Metadata(), o.JSON())
	}
}

func FuzzWatchFrame(f *testing.F) {
	for _, seed := range []string{
		podFrame("ADDED", "a", 6) + podFrame("DELETED", "a", 7) + bookmarkFrame(9),
		endFrame(10), podFrame("ADDED", "a", 6)[:40],
		`{"type":"ERROR","object":` + statusText(410, "Expired", "too old", `"retryAfterSeconds":1`) + `}`,
		`{"type":"ADDED","object":` + tableText("6", columnsText, rowText("a", 1, 6)) + `}`,
		`{"object":{"metadata":{"managedFields":[],"name":"\u0061","resourceVersion":"3"},"metadata":null},"type":"ADDED"}`,
		"{}", "[]", "null", "", " ", "\xff",
		`{"type":"ADDED","object":{"metadata":{"managedFields":1,"managedFields":2,"name":"a","resourceVersion":"7"}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		events, failure := readFrames(text, fuzzBound)
		wantPlausible(t, failure)
		if failure.Kind == keepwatch.Idle || failure.Kind == keepwatch.Unreachable {
			t.Errorf("text led to %v", failure)
		}
		// Every event is one that the standard library reads at the same place.
		twin := json.NewDecoder(strings.NewReader(text))
		var bookmark keepwatch.Revision
		for _, e := range events {
			var members map[string]json.RawMessage
			var kind string
			if err := twin.Decode(&members); err != nil {
				t.Fatalf("%v in %q", err, text)
			}
			json.Unmarshal(members["type"], &kind)
			if e.revision == 0 {
				t.Error("an event without a revision")
			}
			if e.bookmark() {
				if kind != "BOOKMARK" || e.revision < bookmark {
					t.Errorf("bookmark %v behind %v, of type %q", e.revision, bookmark, kind)
				}
				bookmark = e.revision
				continue
			}
			if kind != e.change.Type.String() || e.revision != e.change.Object.Revision() {
				t.Errorf("change %+v, of type %q", e.change, kind)
			}
			wantObject(t, e.change.Object)
		}
	})
}

func FuzzListPage(f *testing.F) {
	for _, seed := range []string{
		podList(7, `,"continue":"next","remainingItemCount":1`, pod("a", 3), pod("b", 7)),
		`{"items":[{"metadata":{"name":"a","resourceVersion":"3"}}],"metadata":{"resourceVersion":"7"},"kind":"PodList","apiVersion":"v1"}`,
		tableText("7", columnsText, rowText("a", 3, 6)),
		podList(7, "", `{"metadata":{"name":"a"},"metadata":{"managedFields":[],"name":"b","resourceVersion":"3"}}`),
		podList(7, "", `{"metadata":{"name":"a","resourceVersion":"3"},"kind":"","kind":1}`),
		podList(7, "", pod("a", 3), "null", `{"metadata":{"name":"b"}}`, pod("c", 5)),
		podList(7, "", pod("a", 3), `{"data":[`+strings.Repeat(`"`+strings.Repeat("x", 1000)+`",`, fuzzBound/1000)+`1]}`,
			pod("c", 5)),
		`{"items":null,"metadata":{"resourceVersion":"7"}}`, podList(7, "")[:20], "{}", "[]", "", "\xff", "{\n}",
		`{"kind":"List","items":[{"metadata":{"name":"a","resourceVersion":"1"}}],"items":[],"metadata":{"resourceVersion":"7"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		page, failure := readPage(text, fuzzBound)
		if failure != nil {
			wantPlausible(t, failure, keepwatch.Undecodable, keepwatch.ProtocolViolation)
			if page.Objects != nil || page.Revision != 0 {
				t.Errorf("a failed page is %+v", page)
			}
			return
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("read %q, which is not JSON", text)
		}
		if page.Revision == 0 || page.Remaining < 0 {
			t.Errorf("page %+v", page)
		}
		for _, failure := range page.Skipped {
			wantPlausible(t, failure, keepwatch.Undecodable, keepwatch.ProtocolViolation)
		}
		wantAll(t, text, page)
		for _, o := range page.Objects {
			wantObject(t, o)
		}
	})
}

// wantAll checks that each item of a list is in the page, or was skipped.
func wantAll(t *testing.T, text string, page keepwatch.Page) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	items := 0
	for depth, name := 0, ""; ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if depth == 2 && (name == "items" || name == "rows") {
				items++
			}
			depth++
			continue
		case json.Delim('}'), json.Delim(']'):
			depth--
			continue
		}
		if depth == 1 {
			name, _ = token.(string)
		} else if depth == 2 && (name == "items" || name == "rows") {
			items++
		}
	}
	if got := len(page.Objects) + len(page.Skipped); got != items {
		t.Errorf("%d objects and %d skipped of %d items", len(page.Objects), len(page.Skipped), items)
	}
}

// FuzzContinueToken checks that the next request has the token of the page unchanged, and
// that the token changes no other parameter.
func FuzzContinueToken(f *testing.F) {
	for _, token := range []string{
		"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NywiZXh0cmEiOiJhYlx1MDAwMCJ9", "a+b/c==",
		"a&limit=1", "#?%25;", "\x00\"\\", "ü☃", "\xff", " ", "\n", "",
	} {
		f.Add(token, int64(500))
	}
	f.Add("next", int64(-1))
	s, err := New(&rest.Config{Host: "http://x.invalid"}, Options{Resource: pods, LabelSelector: "a in (b,c)"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string, limit int64) {
		quoted, _ := json.Marshal(token)
		if json.Unmarshal(quoted, &token) != nil {
			t.Fatalf("no JSON string: %s", quoted)
		}
		page, failure := readPage(podList(7, `,"continue":`+string(quoted), pod("a", 3)), fuzzBound)
		if failure != nil {
			if len(quoted) < fuzzBound/2 {
				t.Fatal(failure)
			}
			return
		}
		if page.Continue != token {
			t.Fatalf("the token %q was read as %q", token, page.Continue)
		}
		s.pageSize = limit
		query, err := url.ParseQuery(s.listQuery(keepwatch.ListRequest{Continue: page.Continue, NotOlderThan: 9}).Encode())
		want := url.Values{"labelSelector": {"a in (b,c)"}}
		if limit > 0 {
			want.Set("limit", strconv.FormatInt(limit, 10))
		}
		if token != "" {
			want.Set("continue", token)
		} else {
			want.Set("resourceVersion", "9")
			want.Set("resourceVersionMatch", "NotOlderThan")
		}
		if err != nil || !maps.EqualFunc(query, want, slices.Equal) {
			t.Errorf("%q is requested with %v, %v", token, query, err)
		}
	})
}

func FuzzStatus(f *testing.F) {
	for _, test := range statuses {
		f.Add(test.code, test.header, "application/json", statusText(test.code, test.reason, test.message, test.details))
	}
	f.Add(502, "Sun, 01 Nov 2026 12:01:30 GMT", "text/plain", "bad \xff gateway")
	f.Add(503, "99999999999", "", `{"kind":"Status","details":{"retryAfterSeconds":2147483647}}`)
	f.Fuzz(func(t *testing.T, code int, header, contentType, text string) {
		h := http.Header{"Retry-After": {header}, "Content-Type": {contentType}}
		resp := &http.Response{StatusCode: code, Status: http.StatusText(code), Header: h}
		x := exchangeOf("", 1)
		failure := x.statusFailure(statusOf(resp, []byte(text)), retryAfter(h, time.Now()))
		wantPlausible(t, failure)
		if failure.Kind < keepwatch.Ended || failure.Kind > keepwatch.LastFailureKind {
			t.Errorf("kind %v", failure.Kind)
		}
		// 410 is Expired unless the Status has a more specific reason.
		var s metav1.Status
		if code == http.StatusGone && json.Unmarshal([]byte(text), &s) != nil && failure.Kind != keepwatch.Expired {
			t.Errorf("410 is %v", failure.Kind)
		}
		event := (&Source{}).frames(x, 0).errorEvent(rawObject{text: []byte(text)})
		wantPlausible(t, event)
	})
}
