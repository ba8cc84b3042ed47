package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// maxDescription bounds a response that describes a resource.
const maxDescription = 64 << 20

const (
	// answerFor bounds the wait for a whole response, as API servers bound it. A request that is never answered, on a
	// connection that lives on, would otherwise never end.
	answerFor = time.Minute
	// watchFor bounds a watch, beside the 5 s that it asks for.
	watchFor = 15 * time.Second
)

// Server is an API server, which is asked what it serves. It is safe for concurrent use.
type Server struct {
	client  *http.Client // with the proxy's identity
	address *url.URL
}

// New returns the server of a configuration.
func New(config *rest.Config) (Server, error) {
	config = rest.CopyConfig(config)
	if config.UserAgent == "" { // a client of client-go has it by default, a transport does not
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return Server{}, err
	}
	address, _, err := rest.DefaultServerUrlFor(config)
	return Server{&http.Client{Transport: transport}, address}, err
}

// getJSON returns the server's description of something, in JSON.
func (s Server) getJSON(ctx context.Context, path string, query url.Values) ([]byte, http.Header, error) {
	return s.Get(ctx, path, query, runtime.ContentTypeJSON, maxDescription)
}

// Get returns the server's response to a GET, for which it waits for a minute at most. It returns a refusal if that is
// not OK, and an error if it is longer than a limit.
func (s Server) Get(ctx context.Context, path string, query url.Values, accept string,
	limit int64) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	response, err := s.open(ctx, path, query, accept)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
	case response.StatusCode != http.StatusOK:
		err = Refusal{path, response.StatusCode}
	case int64(len(body)) > limit:
		err = fmt.Errorf("%s: the answer is longer than %d bytes", path, limit)
	}
	return body, response.Header, err
}

// open sends a GET. The caller closes the body, and bounds the wait.
func (s Server) open(ctx context.Context, path string, query url.Values, accept string) (*http.Response, error) {
	to := *s.address
	to.Path, to.RawQuery = strings.TrimSuffix(s.address.Path, "/")+path, query.Encode()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Accept", accept)
	return s.client.Do(q)
}

// IsAnswer reports whether the server has answered with this error what a resource is. Otherwise it is down, starts, or
// is too busy.
func IsAnswer(err error) bool {
	if refused, ok := errors.AsType[Refusal](err); ok {
		return refused.Code < http.StatusInternalServerError && refused.Code != http.StatusTooManyRequests
	}
	_, isBroken := errors.AsType[net.Error](err)
	return !isBroken && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errUnclear)
}

// Refusal is a response that is not OK.
type Refusal struct {
	path string
	Code int
}

func (r Refusal) Error() string {
	return fmt.Sprintf("%s: %d %s", r.path, r.Code, http.StatusText(r.Code))
}
