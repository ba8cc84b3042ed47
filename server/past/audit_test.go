package past

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
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
		"POST /keepwatch/":                                     "post  405",
		"GET /keepwatch/nothing":                               "get  404",
		"GET /keepwatch/page.css":                              "get  0",
		"GET /keepwatch":                                       "get  0",
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
		if got := fmt.Sprint(e.Verb, " ", e.Annotations[momentAnnotation], " ", status); got != want || code != logged && code != http.StatusFound ||
			e.User.Username != tokenUser.Name {
			t.Errorf("%s: %d, %s by %s, want %s", request, code, got, e.User.Username, want)
		}
		if code, body := ask(full); code != http.StatusInternalServerError || strings.Contains(body, "secrets</option>") {
			t.Errorf("%s: %d without a log: %s", request, code, body)
		}
	}
}

// stuck is a history that reads nothing before the deadline, neither the tables nor, if those are read, their states.
type stuck struct {
	rewound
	tables bool
}

func (s stuck) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	if s.tables {
		return read(s)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (stuck) States(ctx context.Context, _ sink.StateQuery, _ func(sink.State) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// What is not read before the deadline has the code of its answer in the audit log.
func TestAuditOfLateRequests(t *testing.T) {
	t.Parallel()
	for path, tables := range map[string]bool{
		"/keepwatch/": false, "/at/now/apis": false, "/at/now/api/v1/secrets": false,
		"/keepwatch/?type=secrets&from=revision/95&to=revision/99": true,
	} {
		var log bytes.Buffer
		s, err := New(Config{History: history.New(stuck{tables: tables}, history.Options{}), Token: "x", Audit: &log})
		if err != nil {
			t.Fatal(err)
		}
		s.requestTimeout = time.Millisecond
		w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		q.Header.Set("Authorization", "Bearer x")
		s.ServeHTTP(w, q)
		var e auditv1.Event
		if err := json.Unmarshal(log.Bytes(), &e); err != nil || e.ResponseStatus == nil ||
			e.ResponseStatus.Code != http.StatusGatewayTimeout || w.Code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d, the log has %q, %v", path, w.Code, log.Bytes(), err)
		}
	}
}

// noSpace is a file on a full disk.
type noSpace struct{}

func (noSpace) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
