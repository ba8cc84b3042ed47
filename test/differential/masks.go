package differential

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// mask hides values that two servers cannot have in common.
type mask struct {
	why     string
	of      func(Request, []byte) bool // which bodies; nil is all
	pattern *regexp.Regexp
	with    string
}

// commonMasks are for any two servers.
var commonMasks = []mask{
	{
		why:     "how far back each server's history goes is its own business, when both say that it is not far enough",
		pattern: regexp.MustCompile(`too old resource version: (\d+) \(\d+\)`), with: "too old resource version: $1 (*)",
	},
	{
		why: "protobuf has the length of that text, and of the Status in which it is",
		pattern: regexp.MustCompile(
			`(?s)(\x12\x06Status\x12).(\n\x06\n\x00\x12\x00\x1a\x00\x12\x07Failure\x1a).(too old resource version: )`),
		with: "${1}*${2}*${3}",
	},
	{
		why:     "the age that a table shows is counted from the moment of the answer",
		of:      func(_ Request, body []byte) bool { return isTable(body) },
		pattern: regexp.MustCompile(`"(\d+[smhdy])+"`), with: `"*"`,
	},
}

// serveMasks are for keepwatch serve beside kube-apiserver.
var serveMasks = append(slices.Clone(commonMasks),
	mask{
		why: "the description of a built-in kind's column has other words",
		of: func(r Request, body []byte) bool {
			return isTable(body) && strings.HasPrefix(r.Path, "/api/")
		},
		pattern: regexp.MustCompile(`"description":( ?)"(?:[^"\\]|\\.)*"`), with: `"description":$1"*"`,
	},
	mask{
		why:     "so is why a row of pods is shown in another color",
		of:      func(_ Request, body []byte) bool { return isTable(body) },
		pattern: regexp.MustCompile(`"The pod (?:has|failed)[^"]*"`), with: `"The pod *"`,
	},
	mask{
		why:     "the message of an error names a Go type, which theirs keeps in another package",
		pattern: regexp.MustCompile(`\(\*(?:core|v1)\.(\w+)\)`), with: `(*$1)`,
	},
)

// versionMasks are for two servers of the same version.
var versionMasks = append(slices.Clone(commonMasks),
	mask{
		why:     "each server draws the UID of an object that a dry run creates, as updates and applies can, too",
		of:      func(r Request, _ []byte) bool { return r.Method != "" && r.Method != http.MethodDelete },
		pattern: regexp.MustCompile(`"uid":( ?)"[^"]*"`), with: `"uid":$1"*"`,
	},
	mask{
		why:     "a dry run sets the time of the request",
		of:      func(r Request, _ []byte) bool { return r.Method != "" },
		pattern: regexp.MustCompile(`"(creationTimestamp|deletionTimestamp|time)":( ?)"[^"]*"`), with: `"$1":$2"*"`,
	},
)

func isTable(body []byte) bool {
	const enough = 400
	head := body[:min(len(body), enough)]
	return bytes.Contains(head, []byte(`Table"`)) || bytes.Contains(head, []byte(`"columnDefinitions"`))
}

// maskBody returns a body with the masks over it. A table in YAML and all CBOR are compared as JSON: YAML
// folds long strings, and CBOR has the fields of each object in another order each time.
func (c *Comparison) maskBody(r Request, body []byte) []byte {
	if bytes.HasPrefix(body, []byte("apiVersion: meta.k8s.io/")) {
		if text, err := yaml.YAMLToJSON(body); err == nil {
			body = text
		}
	}
	if bytes.HasPrefix(body, cborPrefix) {
		body = readable(cborType, body)
	}
	for _, m := range c.masks {
		if m.of == nil || m.of(r, body) {
			body = m.pattern.ReplaceAll(body, []byte(m.with))
		}
	}
	return body
}

// maskAnswer returns an answer with the masks over it, and with the headers that are compared.
func (c *Comparison) maskAnswer(r Request, a Answer) Answer {
	var events []Event
	for _, e := range a.Events {
		if e.byTheClock() {
			continue
		}
		e = Event{e.Type, c.maskBody(r, e.Object), c.maskBody(r, e.Frame)}
		if len(events) > 0 && isTable(e.Object) {
			e.Object, e.Frame = withoutColumns(e.Object), withoutColumns(e.Frame)
		}
		events = append(events, e)
	}
	a.Events = events
	a.Body = c.maskBody(r, a.Body)
	kept := http.Header{}
	for name, values := range a.Header {
		if c.compares(name) {
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
