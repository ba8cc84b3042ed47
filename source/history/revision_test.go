package history

import "testing"

func TestWithRevision(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"X","metadata":{"name":"a","resourceVersion":"7","uid":"u"}}`:            `{"kind":"X","metadata":{"name":"a","resourceVersion":"42","uid":"u"}}`,
		`{"a":{"metadata":{"resourceVersion":"1"}},"metadata": {"resourceVersion" : ""}}`: `{"a":{"metadata":{"resourceVersion":"1"}},"metadata": {"resourceVersion" : "42"}}`,
		`{"metadata":{}}`: `{"metadata":{}}`, `{"metadata":null}`: `{"metadata":null}`,
		`{"metadata":{"resourceVersion":7}}`: `{"metadata":{"resourceVersion":7}}`,
		`[]`:                                 `[]`, ``: ``,
		`{"metadata":{"resourceVersion":`: `{"metadata":{"resourceVersion":`, `{"a":`: `{"a":`,
	} {
		if got := string(WithRevision([]byte(text), "42")); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
