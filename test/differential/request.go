package differential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Request is one read or one dry run of a write, to be sent to two servers.
type Request struct {
	Method            string // GET if empty; another one has a Body
	Body, ContentType string
	User              user // whom the request impersonates, unless empty

	Path     string
	Options  url.Values
	Accept   string // no header if empty
	Encoding string // Accept-Encoding; no header if empty
	Agent    string // User-Agent; no header if empty
	HTTP1    bool   // over HTTP/1.1 instead of 2
	// Stream is true if the answer, if it is 200, has events.
	Stream bool
}

func (r Request) url(host string) string {
	if len(r.Options) == 0 {
		return host + r.Path
	}
	return host + r.Path + "?" + r.Options.Encode()
}

func (r Request) on(ctx context.Context, host string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, r.url(host), strings.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.headers() {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	request.Header.Set("User-Agent", r.Agent) // empty sends none, instead of Go's own
	return request, nil
}

// headers are those of the request, some of them empty.
func (r Request) headers() map[string]string {
	return map[string]string{"Accept": r.Accept, "Accept-Encoding": r.Encoding, "Content-Type": r.ContentType,
		"Impersonate-User": r.User.name, "Impersonate-Group": r.User.group}
}

// String is the request as a command for a shell.
func (r Request) String() string {
	var b strings.Builder
	b.WriteString("curl -sk -H \"Authorization: Bearer $TOKEN\"")
	if r.HTTP1 {
		b.WriteString(" --http1.1")
	}
	fmt.Fprintf(&b, " -A '%s'", r.Agent)
	if r.Method != "" {
		fmt.Fprintf(&b, " -X %s -d '%s'", r.Method, r.Body)
	}
	headers := r.headers()
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if headers[name] != "" {
			fmt.Fprintf(&b, " -H '%s: %s'", name, headers[name])
		}
	}
	fmt.Fprintf(&b, " '%s'", r.url("$SERVER"))
	return b.String()
}

// verb returns the request's verb, in the API's words.
func (r Request) verb() string {
	switch {
	case r.Method != "":
		return "dry run of " + r.Method
	case r.Stream && r.Options.Get("sendInitialEvents") == "true":
		return "watchlist"
	case r.Stream:
		return "watch"
	case r.Options.Has("continue") || r.Options.Has("limit"):
		return "page"
	default:
		return "read"
	}
}

// revision is the one that the request names, itself or in a list's continue
// token, or 0.
func (r Request) revision() int64 {
	if text, err := base64.RawURLEncoding.DecodeString(r.Options.Get("continue")); err == nil && len(text) > 0 &&
		!r.Stream {
		var token struct{ RV int64 }
		_ = json.Unmarshal(text, &token) // others are none
		return token.RV
	}
	n, _ := strconv.ParseInt(r.Options.Get("resourceVersion"), 10, 64)
	return n
}

// longer is the request with a timeout that lets a slow server finish.
func (r Request) longer() Request {
	options := url.Values{}
	for name, values := range r.Options {
		options[name] = values
	}
	options.Set("timeoutSeconds", "15")
	r.Options = options
	return r
}
