package differential

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// headers are the compared headers of an answer. The others identify the request
// (Audit-Id), the time (Date), the server's own objects (X-Kubernetes-Pf-…) or the
// transport (Content-Length, Transfer-Encoding).
var headers = []string{
	"Content-Type", "Content-Encoding", "Cache-Control", "Vary", "Retry-After", "Warning", "Allow", "X-Content-Type-Options",
}

// mask hides values that two servers cannot have in common.
type mask struct {
	why     string
	of      func(Request, []byte) bool // which bodies; nil is all
	pattern *regexp.Regexp
	with    string
}

var masks = []mask{
	{
		why:     "how far back each server's history goes is its own business, when both say that it is not far enough",
		pattern: regexp.MustCompile(`too old resource version: (\d+) \(\d+\)`), with: "too old resource version: $1 (*)",
	},
	{
		why:     "the age that a table shows is counted from the moment of the answer",
		of:      func(_ Request, body []byte) bool { return isTable(body) },
		pattern: regexp.MustCompile(`"(\d+[smhdy])+"`), with: `"*"`,
	},
	{
		why: "the description of a built-in kind's column has other words",
		of: func(r Request, body []byte) bool {
			return isTable(body) && strings.HasPrefix(r.Path, "/api/")
		},
		pattern: regexp.MustCompile(`"description":( ?)"(?:[^"\\]|\\.)*"`), with: `"description":$1"*"`,
	},
	{
		why:     "so is why a row of pods is shown in another color",
		of:      func(_ Request, body []byte) bool { return isTable(body) },
		pattern: regexp.MustCompile(`"The pod (?:has|failed)[^"]*"`), with: `"The pod *"`,
	},
	{
		why:     "the message of an error names a Go type, which theirs keeps in another package",
		pattern: regexp.MustCompile(`\(\*(?:core|v1)\.(\w+)\)`), with: `(*$1)`,
	},
}

func isTable(body []byte) bool {
	const enough = 400
	head := body[:min(len(body), enough)]
	return bytes.Contains(head, []byte(`Table"`)) || bytes.Contains(head, []byte(`"columnDefinitions"`))
}

// masked is a body with the masks over it. A table in YAML is compared as JSON,
// since its long strings are folded.
func masked(r Request, body []byte) []byte {
	if bytes.HasPrefix(body, []byte("apiVersion: meta.k8s.io/")) {
		if text, err := yaml.YAMLToJSON(body); err == nil {
			body = text
		}
	}
	for _, m := range masks {
		if m.of == nil || m.of(r, body) {
			body = m.pattern.ReplaceAll(body, []byte(m.with))
		}
	}
	return body
}

// masked is an answer with the masks over it.
func (a Answer) masked(r Request) Answer {
	var events []Event
	for _, e := range a.Events {
		if e.byTheClock() {
			continue
		}
		e = Event{e.Type, masked(r, e.Object), masked(r, e.Frame)}
		if len(events) > 0 && isTable(e.Object) {
			e.Object, e.Frame = withoutColumns(e.Object), withoutColumns(e.Frame)
		}
		events = append(events, e)
	}
	a.Events = events
	a.Body = masked(r, a.Body)
	kept := http.Header{}
	for _, name := range headers {
		if values := a.Header.Values(name); len(values) > 0 {
			kept[name] = values
		}
	}
	a.Header = kept
	return a
}

var columns = regexp.MustCompile(`"columnDefinitions":\[.*?\],"rows":`)

// withoutColumns is an event in a table as all but the first are meant to be. The
// library repeats the columns when the first event's encoding was made for
// another watch.
func withoutColumns(event []byte) []byte {
	return columns.ReplaceAll(event, []byte(`"columnDefinitions":null,"rows":`))
}

// countEvents returns the number of events that are compared.
func (a Answer) countEvents() int {
	n := 0
	for _, e := range a.Events {
		if !e.byTheClock() {
			n++
		}
	}
	return n
}
