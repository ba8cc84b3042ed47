package follow

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// answers is a transport whose answers have a Date.
type answers struct{ date string }

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header()["Date"] = []string{a.date}
	return w.Result(), nil
}

// TestServerClock checks that the clock is that of the last answer with a Date, goes on since, and that a clock of this
// machine that is ahead of it is printed once an hour.
func TestServerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // from 2000-01-01 on
		var out bytes.Buffer
		r := newSyncReport(&out, &out, "")
		server := &answers{}
		transport := r.clock.read(server)
		for _, step := range []struct {
			date, now, out string
		}{
			{"", "0001-01-01T00:00:00Z", ""},
			{"Sat, 01 Jan 2000 01:00:59 GMT", "2000-01-01T01:00:59Z", ""},
			{"soon", "2000-01-01T02:00:59Z", ""},
			{"Mon, 03 Jan 2000 00:00:00 GMT", "2000-01-03T00:00:00Z", ""},
			{"Fri, 31 Dec 1999 04:00:00 GMT", "1999-12-31T04:00:00Z",
				"the clock shows 2000-01-01T04:00:00Z, and that of the API server 1999-12-31T04:00:00Z: transactions"},
		} {
			server.date = step.date
			answer, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			for range 2 {
				r.committed(sink.Batch{})
			}
			if now := r.clock.now().UTC().Format(time.RFC3339); now != step.now || strings.Count(out.String(), "\n") !=
				min(len(step.out), 1) || !strings.Contains(out.String(), step.out) {
				t.Errorf("%q: %s: %s", step.date, now, out.String())
			}
			time.Sleep(time.Hour)
		}
	})
}
