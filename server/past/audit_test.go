package past

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keepwatch/keepwatch/source/history"
)

// Each request has one line in the audit log, and none is answered without one.
func TestAuditOfAllRequests(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s, err := New(Config{History: history.New(rewound{}, history.Options{}), Token: "x", Audit: &log})
	if err != nil {
		t.Fatal(err)
	}
	full, err := New(Config{History: history.New(rewound{}, history.Options{}), Token: "x", Audit: noSpace{}})
	if err != nil {
		t.Fatal(err)
	}
	const at = "/at/revision/100"
	for request, want := range map[string]string{
		"GET " + at + "/apis":                                  "get revision/100 0",
		"GET " + at + "/version":                               "get revision/100 0",
		"GET " + at + "/openapi/v3":                            "get revision/100 0",
		"GET " + at + "/apis/nothing.io":                       "get revision/100 404",
		"GET " + at + "/openapi/v3/apis/nothing.io/v1":         "get revision/100 404",
		"POST " + at + "/apis":                                 "post revision/100 405",
		"DELETE " + at + "/api/v1/namespaces/shop/secrets/s1":  "delete revision/100 405",
		"GET " + at + "/api/v1/namespaces/shop/secrets/s1/log": "get revision/100 404",
		"GET /at/never/apis":                                   "get  400",
		"GET /metrics":                                         "get  0",
		"GET /keepwatch/":                                      "get  0",
		"GET /keepwatch/?type=nothing":                         "get  404",
		"GET /keepwatch/?type=secrets&name=s1":                 "get  400",
	} {
		var method, path string
		if _, err := fmt.Sscan(request, &method, &path); err != nil {
			t.Fatal(err)
		}
		ask := func(s *Server) (int, string) {
			w, q := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
			q.Header.Set("Authorization", "Bearer x")
			s.ServeHTTP(w, q)
			return w.Code, w.Body.String()
		}
		log.Reset()
		code, _ := ask(s)
		var e auditv1.Event
		if err := json.Unmarshal(log.Bytes(), &e); err != nil {
			t.Errorf("%s: %q: %v", request, log.Bytes(), err)
			continue
		}
		status, logged := 0, http.StatusOK
		if e.ResponseStatus != nil {
			status, logged = int(e.ResponseStatus.Code), int(e.ResponseStatus.Code)
		}
		if got := fmt.Sprint(e.Verb, " ", e.Annotations[momentAnnotation], " ", status); got != want || code != logged ||
			e.User.Username != tokenUser.Name {
			t.Errorf("%s: %d, %s by %s, want %s", request, code, got, e.User.Username, want)
		}
		if code, body := ask(full); code != http.StatusInternalServerError || strings.Contains(body, "secrets</option>") {
			t.Errorf("%s: %d without a log: %s", request, code, body)
		}
	}
}

// noSpace is a file on a full disk.
type noSpace struct{}

func (noSpace) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
