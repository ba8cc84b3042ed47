package kube

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keepwatch/keepwatch"
)

// statuses has Statuses of servers, and the failure kind of each.
var statuses = map[string]struct {
	code    int
	reason  string
	message string
	details string // in the Status
	header  string // Retry-After
	kind    keepwatch.FailureKind
	wait    time.Duration
}{
	"gone": {410, "Gone", "too old resource version: 1 (7)", "", "", keepwatch.Expired, 0},
	"expired": {410, "Expired", "The resourceVersion for the provided watch is too old.", "", "",
		keepwatch.Expired, 0},
	"410 without a reason":  {410, "", "", "", "", keepwatch.Expired, 0},
	"410, another reason":   {410, "Timeout", "", "", "", keepwatch.Expired, 0},
	"expired, another code": {500, "Expired", "", "", "", keepwatch.Expired, 0},
	"gone, another code":    {400, "Gone", "", "", "", keepwatch.Expired, 0},
	"too large": {504, "Timeout", "Too large resource version: 9, current: 7",
		`"retryAfterSeconds":1,"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]`, "",
		keepwatch.RevisionTooLarge, time.Second},
	"too large before 1.18.6": {504, "Timeout", "Timeout: Too large resource version: 9, current: 7",
		`"causes":[{"message":"Too large resource version"}]`, "", keepwatch.RevisionTooLarge, 0},
	"too large, by message": {504, "Timeout", "Timeout: Too large resource version: 9, current: 7", "", "",
		keepwatch.RevisionTooLarge, 0},
	"storage": {500, "StorageReadError", "failed to read one or more secrets from the storage", "", "",
		keepwatch.StorageRead, 0},
	"storage, by its other name": {500, "StoreReadError", "", "", "", keepwatch.StorageRead, 0},
	"storage, with advice": {500, "StorageReadError", "", `"retryAfterSeconds":1`, "", keepwatch.StorageRead,
		time.Second},
	"unauthorized": {401, "Unauthorized", "Unauthorized", "", "", keepwatch.Unauthorized, 0},
	"forbidden": {403, "Forbidden", `pods is forbidden: User "x" cannot list resource "pods"`, "", "",
		keepwatch.Forbidden, 0},
	"not found": {404, "NotFound", "the server could not find the requested resource", "", "",
		keepwatch.Absent, 0},
	"throttled, header": {429, "TooManyRequests", "Too many requests, please try again later.", "", "7",
		keepwatch.Throttled, 7 * time.Second},
	"throttled, details": {429, "TooManyRequests", "storage is (re)initializing", `"retryAfterSeconds":2`, "",
		keepwatch.Throttled, 2 * time.Second},
	"throttled, both": {429, "TooManyRequests", "", `"retryAfterSeconds":3`, "2", keepwatch.Throttled,
		3 * time.Second},
	"throttled, no advice": {429, "TooManyRequests", "", "", "", keepwatch.Throttled, 0},
	"503 with advice":      {503, "ServiceUnavailable", "shutting down", "", "1", keepwatch.Throttled, time.Second},
	"504 with advice":      {504, "Timeout", "", `"retryAfterSeconds":4`, "", keepwatch.Throttled, 4 * time.Second},
	"500 with advice":      {500, "InternalError", "", "", "5", keepwatch.Throttled, 5 * time.Second},
	"500": {500, "InternalError", "Internal error occurred: etcd", "", "", keepwatch.ServerError,
		0},
	"500, no reason":      {500, "", "", "", "", keepwatch.ServerError, 0},
	"502":                 {502, "", "bad gateway", "", "", keepwatch.ServerError, 0},
	"503":                 {503, "ServiceUnavailable", "apiserver not ready", "", "", keepwatch.ServerError, 0},
	"504":                 {504, "Timeout", "the request timed out", "", "", keepwatch.ServerError, 0},
	"500, server timeout": {500, "ServerTimeout", "", "", "", keepwatch.ServerError, 0},
	"408":                 {408, "", "", "", "", keepwatch.ServerError, 0},
	"400":                 {400, "BadRequest", "unable to parse requirement", "", "", keepwatch.Rejected, 0},
	"405":                 {405, "MethodNotAllowed", "", "", "", keepwatch.Rejected, 0},
	"406":                 {406, "NotAcceptable", "", "", "", keepwatch.Rejected, 0},
	"415":                 {415, "UnsupportedMediaType", "", "", "", keepwatch.Rejected, 0},
	"422":                 {422, "Invalid", "", "", "", keepwatch.Rejected, 0},
	"409":                 {409, "Conflict", "", "", "", keepwatch.UnknownStatus, 0},
	"418":                 {418, "Teapot", "short and stout", "", "", keepwatch.UnknownStatus, 0},
}

// Each row of the table decides at least one status.
func TestStatusTable(t *testing.T) {
	deciding := map[string]bool{}
	for _, test := range statuses {
		text := statusText(test.code, test.reason, test.message, test.details)
		s, _ := parseStatus([]byte(text))
		for _, row := range statusTable {
			if row.matches(s, test.wait > 0) {
				deciding[row.name] = true
				break
			}
		}
	}
	for _, row := range statusTable {
		if !deciding[row.name] {
			t.Errorf("no status matches %q", row.name)
		}
	}
}

func TestStatusOnRequest(t *testing.T) {
	for name, test := range statuses {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				if test.header != "" {
					w.Header().Set("Retry-After", test.header)
				}
				w.Header().Set("Content-Type", "application/json")
				// If the Status has another code than the response, the Status counts.
				w.WriteHeader(test.code)
				send(w, statusText(test.code, test.reason, test.message, test.details))
			}), Options{})
			message := cmp.Or(test.message, test.reason, fmt.Sprintf("status %d", test.code))
			_, err := s.List(t.Context(), keepwatch.ListRequest{})
			if got := wantFailure(t, err, test.kind, "list pods: "+message); got.RetryAfter != test.wait {
				t.Errorf("list: wait %v, want %v", got.RetryAfter, test.wait)
			}
			_, err = s.Watch(t.Context(), 5)
			if got := wantFailure(t, err, test.kind, "watch pods: "+message); got.RetryAfter != test.wait {
				t.Errorf("watch: wait %v, want %v", got.RetryAfter, test.wait)
			}
			_, _, err = s.StreamList(t.Context(), 5, nil)
			if kind := test.kind; kind == keepwatch.Rejected {
				wantFailure(t, err, keepwatch.StreamingListUnsupported, message)
			} else {
				wantFailure(t, err, kind, message)
			}
		})
	}
}

func TestStatusInStream(t *testing.T) {
	for name, test := range statuses {
		if test.header != "" {
			continue // an event has no headers
		}
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				send(w, podFrame("ADDED", "a", 6))
				send(w, `{"type":"ERROR","object":`, statusText(test.code, test.reason, test.message, test.details), "}\n")
				send(w, podFrame("ADDED", "b", 7))
			}), Options{})
			batches, err := drain(open(t, s))
			message := cmp.Or(test.message, test.reason, fmt.Sprintf("status %d", test.code))
			if got := wantFailure(t, err, test.kind, "watch pods: "+message); got.RetryAfter != test.wait {
				t.Errorf("wait %v, want %v", got.RetryAfter, test.wait)
			}
			wantHistory(t, batches, 5, 6, "ADDED a@6")
		})
	}
}

func TestErrorEventWithoutStatus(t *testing.T) {
	for _, object := range []string{`null`, `{}`, `{"kind":"Pod"}`, `{"kind":"Status"}`, `"no"`,
		`{"kind":"Status","code":"x"}`} {
		s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
			send(w, `{"type":"ERROR","object":`+object+`}`)
		}), Options{})
		_, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.UnknownStatus, "watch pods: ")
	}
}

// Proxies send error responses without a Status.
func TestAnswerWithoutStatus(t *testing.T) {
	for name, test := range map[string]struct {
		code           int
		contentType    string
		text           string
		kind           keepwatch.FailureKind
		want, unwanted string
	}{
		"plain": {502, "text/plain; charset=utf-8", "upstream is down\nsecond line", keepwatch.ServerError,
			"list pods: 502 Bad Gateway: upstream is down", "second"},
		"page": {503, "text/html", "<html>down</html>", keepwatch.ServerError, "list pods: 503 Service Unavailable",
			"html"},
		"nothing": {404, "text/plain", "404 page not found\n", keepwatch.Absent,
			"list pods: the server could not find the requested resource", "404"},
		"long": {401, "text/plain", strings.Repeat("x", 1<<20), keepwatch.Unauthorized, "xxx…",
			strings.Repeat("x", 201)},
		"no status": {403, "application/json", `{"error":"no"}`, keepwatch.Forbidden, "list pods: 403 Forbidden", "error"},
		"not 200":   {204, "", "", keepwatch.UnknownStatus, "list pods: 204 No Content", "x"},
		"no code": {410, "application/json", `{"kind":"Status","message":"gone with the wind"}`, keepwatch.Expired,
			"list pods: gone with the wind", "410"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				w.WriteHeader(test.code)
				w.Write([]byte(test.text))
			}), Options{})
			_, err := s.List(t.Context(), keepwatch.ListRequest{})
			wantFailure(t, err, test.kind, test.want)
			if strings.Contains(err.Error(), test.unwanted) {
				t.Errorf("message %q contains %q", err, test.unwanted)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"1":                             time.Second,
		" 30 ":                          30 * time.Second,
		"-1":                            0,
		"1.5":                           0,
		"soon":                          0,
		"99999999999":                   24 * time.Hour,
		"99999999999999999999999":       0,
		"Sun, 01 Nov 2026 12:01:30 GMT": 90 * time.Second,
		"Sun, 01 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// refusedAddress returns the address of a port without a listener.
func refusedAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestNoConnection(t *testing.T) {
	unknown := serve(t, "HTTP/2.0", func(http.ResponseWriter, *http.Request) {})
	unknown.CAData = nil
	another := serve(t, "HTTP/2.0", func(http.ResponseWriter, *http.Request) {})
	plain := serve(t, "HTTP/1.1", func(http.ResponseWriter, *http.Request) {})
	unresolvable := &rest.Config{Host: "http://nowhere.invalid", Dial: func(context.Context, string,
		string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}
	}}
	timedOut := &rest.Config{Host: "http://far.invalid", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}}
	exec := &rest.Config{Host: "https://" + refusedAddress(t), ExecProvider: &clientcmdapi.ExecConfig{
		Command: "/does/not/exist", APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	for name, test := range map[string]struct {
		cfg  *rest.Config
		kind keepwatch.FailureKind
		want string
	}{
		"refused":           {&rest.Config{Host: refusedAddress(t)}, keepwatch.Unreachable, "connection refused"},
		"unresolvable":      {unresolvable, keepwatch.Unreachable, "no such host"},
		"dial timeout":      {timedOut, keepwatch.Unreachable, "deadline exceeded"},
		"unknown authority": {unknown, keepwatch.Untrusted, "certificate signed by unknown authority"},
		"another host":      {named(another, "db.example.org"), keepwatch.Untrusted, "not db.example.org"},
		"expired":           {serveCertified(t, -time.Hour), keepwatch.Untrusted, "certificate has expired"},
		"not valid yet":     {serveCertified(t, 3*time.Hour), keepwatch.Untrusted, "not yet valid"},
		"not ours": {untrustedConfig(t), keepwatch.Unauthorized,
			"remote error: tls: unknown certificate authority"},
		"no TLS": {&rest.Config{Host: "https://" + strings.TrimPrefix(plain.Host, "http://")},
			keepwatch.Unreachable, "server gave HTTP response"},
		"closed at once": {serve(t, "HTTP/1.1", func(http.ResponseWriter, *http.Request) { abortResponse() }),
			keepwatch.Unreachable, "EOF"},
		"reset at once (h2)": {serve(t, "HTTP/2.0", func(http.ResponseWriter, *http.Request) { abortResponse() }),
			keepwatch.Unreachable, "INTERNAL_ERROR"},
		"no credentials": {exec, keepwatch.Unauthorized, "getting credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, test.cfg, Options{})
			_, err := s.List(t.Context(), keepwatch.ListRequest{})
			wantFailure(t, err, test.kind, "list pods: ", test.want)
			if strings.Contains(err.Error(), "limit=500") {
				t.Errorf("%q repeats the address", err)
			}
			_, err = s.Watch(t.Context(), 5)
			wantFailure(t, err, test.kind, "watch pods: ", test.want)
			_, _, err = s.StreamList(t.Context(), 0, nil)
			wantFailure(t, err, test.kind, "list pods: ", test.want)
		})
	}
}

func TestListInterrupted(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		send(w, podList(7, "", pod("a", 3))[:100])
		abortResponse()
	}
	overEach(t, answer, Options{}, func(t *testing.T, s *Source) {
		_, err := s.List(t.Context(), keepwatch.ListRequest{})
		wantFailure(t, err, keepwatch.Unreachable, "list pods: ")
	})
}

func TestListShorterThanAnnounced(t *testing.T) {
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		text := podList(7, "", pod("a", 3))
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		send(w, text[:50])
	}), Options{})
	_, err := s.List(t.Context(), keepwatch.ListRequest{})
	wantFailure(t, err, keepwatch.Unreachable, "unexpected EOF")
}

func TestCompression(t *testing.T) {
	zip := func(text string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
		return b.Bytes()
	}
	whole := zip(podList(7, "", pod("a", 3)))
	garbled := bytes.Clone(whole)
	copy(garbled[12:], "garbage")
	otherSum := bytes.Clone(whole)
	otherSum[len(otherSum)-8] ^= 1
	for name, test := range map[string]struct {
		body []byte
		kind keepwatch.FailureKind // 0: none
	}{
		"whole":          {whole, 0},
		"garbled":        {garbled, keepwatch.Undecodable},
		"no gzip":        {[]byte(podList(7, "")), keepwatch.Undecodable},
		"checksum":       {otherSum, keepwatch.Undecodable},
		"truncated head": {whole[:5], keepwatch.Unreachable},
		"truncated":      {whole[:len(whole)/2], keepwatch.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				w.Write(test.body)
			}
			overEach(t, answer, Options{}, func(t *testing.T, s *Source) {
				page, err := s.List(t.Context(), keepwatch.ListRequest{})
				if test.kind != 0 {
					wantFailure(t, err, test.kind, "list pods: ")
				} else if err != nil || len(page.Objects) != 1 {
					t.Errorf("got %+v, %v", page, err)
				}
			})
		})
	}
}

// transportTable is also tested with errors that are hard to produce with a server.
func TestKindOfTransportError(t *testing.T) {
	for text, want := range map[string]keepwatch.FailureKind{
		`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""`:           keepwatch.Ended,
		`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=ENHANCE_YOUR_CALM, debug="x"`: keepwatch.Unreachable,
		`http2: client connection lost`:                                     keepwatch.Unreachable,
		`stream error: stream ID 1; NO_ERROR; received from peer`:           keepwatch.Unreachable,
		`read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer`: keepwatch.Unreachable,
	} {
		if got := kindOfTransportError(errors.New(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
