package audit_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
)

// inItems changes the items of lists.
func inItems(change func(r *http.Request, items []any) []any) func(*http.Request, []byte) []byte {
	return func(r *http.Request, body []byte) []byte {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		var l map[string]any
		if decoder.Decode(&l) != nil {
			return body
		}
		items, ok := l["items"].([]any)
		if !ok {
			return body
		}
		l["items"] = change(r, items)
		changed, _ := json.Marshal(l)
		return changed
	}
}

func isNamespaces(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/namespaces") }

// metadataOf returns the metadata of an item.
func metadataOf(item any) map[string]any {
	return item.(map[string]any)["metadata"].(map[string]any)
}

// statusServer answers each request with a Status.
func statusServer(t *testing.T, code int, reason, message string) *rest.Config {
	return judgetest.Proxy{Intercept: func(w http.ResponseWriter, _ *http.Request) bool {
		judgetest.Refuse(w, code, reason, message, "")
		return true
	}}.Serve(t, api)
}
