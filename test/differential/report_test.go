package differential

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// An exception permits its own difference only, and only if its condition is true.
func TestExceptions(t *testing.T) {
	_, expired := streamed(t, "expired", answers["expired"])
	_, replay := streamed(t, "watch", answers["watch"])
	gone := Answer{Status: 410, Body: []byte(`{}`)}
	list := answers["list"]
	for _, test := range []struct {
		name         string
		revision     string
		origin       int64
		theirs, ours Answer
		stream       bool
		differences  int
	}{
		{"theirs has forgotten", "3", 2, expired, replay, true, 0},
		{"ours has forgotten", "15", 2, replay, expired, true, 1},
		{"ours was restarted after it", "3", 12, list, gone, false, 0},
		{"ours has lost history that it had before", "3", 2, list, gone, false, 1},
		{"ours forgets what etcd knows", "10", 12, list, gone, false, 1},
		{"equal", "3", 2, list, list, false, 0},
		{"a token with a slash", "3", 2, withToken(list, "/one/a"), withToken(list, "one/a"), false, 0},
		{"another token", "3", 2, withToken(list, "/one/a"), withToken(list, "one/b"), false, 1},
	} {
		report := NewReport(ServeBesideKubernetes())
		report.Add(Exchange{
			Request: Request{Path: "/api/v1/pods", Options: url.Values{"resourceVersion": {test.revision}}, Stream: test.stream},
			Theirs:  test.theirs, Ours: test.ours, World: WorldState{Origin: test.origin, Compacted: 9, Revision: 20},
		})
		if got := report.Differences(); got != test.differences {
			t.Errorf("%s: %d differences, want %d", test.name, got, test.differences)
		}
	}
}

func withToken(list Answer, start string) Answer {
	token := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":7,"start":"%s\u0000"}`,
		start))
	list.Body = bytes.Replace(list.Body, []byte(`"continue":"x"`), fmt.Appendf(nil, `"continue":"%s"`, token), 1)
	return list
}

// A report names each cause once, with requests that can be sent again.
func TestReport(t *testing.T) {
	report := NewReport(ServeBesideKubernetes())
	other := answers["list"]
	other.Body = bytes.Replace(other.Body, []byte(`"b"`), []byte(`"c"`), 1)
	for range 5 {
		report.Add(Exchange{
			Request: Request{Path: "/api/v1/pods", Options: url.Values{"limit": {"2"}}, Accept: "application/json"},
			Theirs:  answers["list"], Ours: other,
		})
	}
	report.Add(Exchange{Request: Request{Path: "/api/v1/pods"}, Theirs: answers["refusal"], Ours: answers["refusal"]})
	if all, answered := report.Requests(); all != 6 || answered != 5 {
		t.Errorf("%d requests, %d answered", all, answered)
	}
	var out strings.Builder
	report.Print(&out)
	if text := out.String(); strings.Count(text, " × ") != 1 || strings.Count(text, "curl ") != samples ||
		!strings.Contains(text, "5 × page: body .items[].metadata.name") ||
		!strings.Contains(text, `-H 'Accept: application/json' '$SERVER/api/v1/pods?limit=2'`) {
		t.Error(text)
	}
}

// Keepwatch completes objects of older versions in every watch: only kube-apiserver may lack their fields.
func TestNotCompleted(t *testing.T) {
	const field, cell = "events: MODIFIED body .spec.clusterIPs", "events: MODIFIED body .rows[].cells[]"
	none := excerpt("<none>")
	for _, test := range []struct {
		Difference
		path    string
		permits bool
	}{
		{Difference{field, "null", `["10.0.9.9"]`}, "/api/v1/services", true},
		{Difference{field, `["10.0.9.9"]`, "null"}, "/api/v1/services", false},
		{Difference{"events: MODIFIED body .spec.type", "null", `"ClusterIP"`}, "/api/v1/services", false},
		{Difference{cell, none, `"10.0.9.9"`}, "/api/v1/namespaces/one/services", true},
		{Difference{cell, `"10.0.9.9"`, none}, "/api/v1/namespaces/one/services", false},
		{Difference{cell, none, `"10.0.9.9"`}, "/api/v1/pods", false},
	} {
		for _, stream := range []bool{true, false} {
			got := notCompleted.permits(Exchange{Request: Request{Path: test.path, Stream: stream}}, test.Difference)
			if got != (test.permits && stream) {
				t.Errorf("%s, streamed %t: %t", test.Difference, stream, got)
			}
		}
	}
}
