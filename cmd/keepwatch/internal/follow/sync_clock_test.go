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

// TestServerClock checks that the clock is that of the answer which is ahead of the others, goes on since, and that a
// clock of this machine that is ahead of it is printed once an hour, with what times transactions have.
func TestServerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // from 2000-01-01 on
		var out bytes.Buffer
		r := newSyncReport(&out, &out, "")
		server := &answers{}
		transport := r.clock.read(server)
		for _, step := range []struct {
			date   string
			newest time.Time
			now    string
			out    string
			wait   time.Duration
		}{
			{"", time.Time{}, "0001-01-01T00:00:00Z", "", time.Hour},
			{"Fri, 31 Dec 1999 04:00:00 GMT", time.Time{}, "1999-12-31T04:00:00Z",
				"the clock shows 2000-01-01T01:00:00Z, and that of the API server 1999-12-31T04:00:00Z: transactions have the latter",
				time.Hour},
			{"soon", time.Now().Add(-12 * time.Hour), "1999-12-31T05:00:00Z",
				"the clock shows 2000-01-01T02:00:00Z, that of the API server 1999-12-31T05:00:00Z, " +
					"and the newest transaction is of 1999-12-31T12:00:00Z: until then, all transactions have that time", 5 * time.Minute},
			{"Fri, 31 Dec 1999 04:30:00 GMT", time.Time{}, "1999-12-31T05:05:00Z", "", time.Hour},
			{"Sat, 01 Jan 2000 03:04:30 GMT", time.Time{}, "2000-01-01T03:04:30Z", "", time.Hour},
			{"Mon, 03 Jan 2000 00:00:00 GMT", time.Time{}, "2000-01-03T00:00:00Z", "", time.Hour},
			{"Fri, 31 Dec 1999 04:00:00 GMT", time.Time{}, "2000-01-03T01:00:00Z", "", time.Hour}, // of the one that was ahead
			{"Fri, 31 Dec 1999 05:00:00 GMT", time.Time{}, "1999-12-31T05:00:00Z", "the clock shows 2000-01-01T06:05:00Z, " +
				"and that of the API server 1999-12-31T05:00:00Z: transactions have the latter", 0},
		} {
			server.date = step.date
			answer, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			out.Reset()
			for range 2 {
				r.committed(sink.Batch{Time: step.newest})
			}
			if now := r.clock.now().UTC().Format(time.RFC3339); now != step.now || strings.Count(out.String(), "\n") !=
				min(len(step.out), 1) || !strings.Contains(out.String(), step.out) {
				t.Errorf("%q: %s: %s", step.date, now, out.String())
			}
			time.Sleep(step.wait)
		}
	})
}
