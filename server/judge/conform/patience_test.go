package conform

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// answering is a server whose answers a function gives.
type answering func(*http.Request) *http.Response

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func (f answering) subject() *subject {
	return &subject{client: &http.Client{Transport: f}, host: &url.URL{Scheme: "http", Host: "server"},
		timeout: requestTimeout, waits: defaultWaits}
}

// starts is the answer of a server that starts.
func starts(retryAfter string) *http.Response {
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {retryAfter}},
		Body: http.NoBody}
}

// behind is the answer of a server whose cache has not reached a revision.
func behind() *http.Response {
	return &http.Response{StatusCode: http.StatusGatewayTimeout, Header: http.Header{"Retry-After": {"1"}},
		Body: io.NopCloser(strings.NewReader(`{"kind":"Status","code":504,"reason":"Timeout",` +
			`"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}`))}
}

// A watch lasts from when it is open: a server may refuse it for minutes before.
func TestTimeoutOfThrottledWatch(t *testing.T) {
	for lasts, want := range map[time.Duration]Verdict{2 * time.Second: Kept, 13 * time.Second: Broken} {
		synctest.Test(t, func(t *testing.T) {
			refused := false
			got, err := watchesUntilTimeout(t.Context(), answering(func(*http.Request) *http.Response {
				if !refused {
					refused = true
					return starts("60")
				}
				body, end := io.Pipe()
				time.AfterFunc(lasts, func() { end.Close() })
				return &http.Response{StatusCode: http.StatusOK, Body: body}
			}).subject())
			if err != nil || got.verdict != want {
				t.Errorf("a watch of %v: %v, %v", lasts, got, err)
			}
		})
	}
}

// The cache of a server that has started may follow the writes as late as any other. A server that stays behind, or
// never stays up, is given up.
func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		at       func(since time.Duration) *http.Response // the answer; nil: 200
		code     int
		from, to time.Duration // when it is the last
	}{
		"starts, then is behind": {func(since time.Duration) *http.Response {
			switch {
			case since < time.Minute:
				return starts("45")
			case since < 90*time.Second+defaultWaits.lag/2:
				return behind()
			}
			return nil
		}, http.StatusOK, 90*time.Second + defaultWaits.lag/2, 90*time.Second + defaultWaits.lag},
		"stays behind": {func(time.Duration) *http.Response { return behind() },
			http.StatusGatewayTimeout, defaultWaits.lag - 2*time.Second, defaultWaits.lag},
		"starts, then stays behind": {func(since time.Duration) *http.Response {
			if since < time.Minute {
				return starts("45")
			}
			return behind()
		}, http.StatusGatewayTimeout, 90*time.Second + defaultWaits.lag - 2*time.Second, 90*time.Second + defaultWaits.lag},
		"starts again and again": {func(since time.Duration) *http.Response {
			if since.Truncate(time.Second)%(20*time.Second) < 10*time.Second {
				return behind()
			}
			return starts("1")
		}, http.StatusServiceUnavailable, defaultWaits.recovery - 2*time.Second, defaultWaits.recovery + defaultWaits.lag},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			a, err := answering(func(*http.Request) *http.Response {
				if answer := c.at(time.Since(began)); answer != nil {
					return answer
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
			}).subject().do(t.Context(), http.MethodGet, "a", nil, asJSON, nil)
			if took := time.Since(began); err != nil || a.code != c.code || took < c.from || took > c.to {
				t.Errorf("%s: %v after %v, %v", name, a, took, err)
			}
		})
	}
}
