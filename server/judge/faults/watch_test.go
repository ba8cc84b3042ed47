package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var jsonLines = framing{lines{}, jsonEvents{}}

func TestWatchFaults(t *testing.T) {
	one, two := added(1), added(2)
	size := int64(len(one))
	tests := []struct {
		fault  Fault
		body   string
		broken bool
	}{
		{End.After(size), one, false},
		{End.After(1), one, false}, // at the frame's end
		{End, "", false},
		{Cut.After(size), one, true},
		{Tear.After(size + 5), one + two[:5], true},
		{Tear.After(size), one + string(jsonLines.torn()), true}, // waits for no frame
		{Tear.After(2*size - 1), one + two[:size-1], true},
		{Garbage.After(size), one + string(jsonLines.wrap(jsonLines.encoding.garbage())) + two, false},
		{Repeat.After(size), one + one + two, false},
		{Repeat, one + two, false},
		{None.After(size), one + two, false},
		{End.After(1 << 20), one + two, false},
	}
	bothProtocols(t, func(t *testing.T, http1 bool) {
		for _, test := range tests {
			t.Run(test.fault.String(), func(t *testing.T) {
				cluster, upstream := newCluster(t, 2)
				close(cluster.events)
				p := New(t, upstream, Plan{HTTP1: http1})
				p.Next(Watch, "pods", test.fault)
				code, body, err := newClient(t, p, http1).read(t, watchPods)
				if code != 200 || body != test.body || (err != nil) != test.broken {
					t.Errorf("got %d %q, %v; want %q, broken %v", code, body, err, test.body, test.broken)
				}
			})
		}
	})
}

func TestErrorEvent(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		for _, err := range []*apierrors.StatusError{Expired, Gone, InternalError, Unavailable, Timeout} {
			_, upstream := newCluster(t, 1)
			p := New(t, upstream, Plan{HTTP1: http1})
			p.Next(Watch, Any, Event(err).After(1))
			_, body, readErr := newClient(t, p, http1).read(t, watchPods)
			rest, ok := strings.CutPrefix(body, added(1))
			var got struct {
				Type   string
				Object metav1.Status
			}
			if readErr != nil || !ok || !strings.HasSuffix(rest, "\n") || json.Unmarshal([]byte(rest), &got) != nil {
				t.Fatalf("got %q, %v", body, readErr)
			}
			want := err.Status()
			if got.Type != "ERROR" || got.Object.Kind != "Status" || got.Object.Reason != want.Reason ||
				got.Object.Code != want.Code {
				t.Errorf("got %+v, want %v", got, want)
			}
		}
	})
}

func TestReset(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		_, upstream := newCluster(t, 1)
		p := New(t, upstream, Plan{HTTP1: http1})
		p.Next(Watch, "pods", Reset.After(1))
		c := newClient(t, p, http1)
		if _, body, err := c.read(t, watchPods); err == nil {
			t.Errorf("got %q, and no error; want a reset", body)
		}
		c.wantReset(t)
	})
}

func TestStallAndHalfOpenHoldUntilTold(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		for _, fault := range []Fault{Stall, HalfOpen} {
			t.Run(fault.String(), func(t *testing.T) {
				cluster, upstream := newCluster(t, 1)
				p := New(t, upstream, Plan{HTTP1: http1})
				c := newClient(t, p, http1)
				response, err := c.get(t.Context(), watchPods)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				lines := bufio.NewReader(response.Body)
				if got, err := lines.ReadString('\n'); got != added(1) || err != nil {
					t.Fatalf("got %q, %v", got, err)
				}
				if n := p.Now(Watch, "pods", fault); n != 1 {
					t.Fatalf("%d open watches, want 1", n)
				}
				waitForEntries(t, p, func(e []Entry) bool { return len(e[0].Faults) == 1 })
				cluster.events <- added(2)

				// The rest of an HTTP/2 connection stalls only with it.
				if !http1 {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					if fault == Stall {
						ctx = t.Context()
					}
					other, err := c.get(ctx, "/api/v1/namespaces")
					if err == nil {
						other.Body.Close()
					}
					cancel()
					if errors.Is(err, context.DeadlineExceeded) != (fault == HalfOpen) {
						t.Errorf("another request on the connection: %v", err)
					}
				}
				if got := p.Transcript()[0]; got.Frames != 1 {
					t.Errorf("forwarded while stalled: %v", got)
				}
				p.Now(Watch, "pods", None)
				if got, err := lines.ReadString('\n'); got != added(2) || err != nil {
					t.Errorf("after it: got %q, %v", got, err)
				}
			})
		}
	})
}

// TestCalm requires that a plan ends, for open watches and for new ones, and that faults of commands do not.
func TestCalm(t *testing.T) {
	for _, fault := range []string{"fault: cut\n  after: {events: 2}", fmt.Sprint("fault: tear\n  after: {bytes: ",
		len(added(1))+1, "}")} {
		testCalm(t, fault)
	}
}

func testCalm(t *testing.T, fault string) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		cluster, upstream := newCluster(t, 1)
		plan := parsePlan(t, http1, "- match: {verb: watch}\n  "+fault+"\n")
		p := New(t, upstream, plan)
		c := newClient(t, p, http1)
		response, err := c.get(t.Context(), watchPods)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		if line, err := lines.ReadString('\n'); err != nil || line != added(1) {
			t.Fatalf("got %q, %v", line, err)
		}
		p.Calm()
		p.Calm() // a second time has no effect
		for n := 2; n < 6; n++ {
			cluster.events <- added(n)
			if line, err := lines.ReadString('\n'); err != nil || line != added(n) {
				t.Fatalf("after Calm: got %q, %v; want event %d", line, err, n)
			}
		}
		close(cluster.events)
		p.Next(List, "pods", Answer(Gone))
		if code, _, _ := c.read(t, pods); code != 410 {
			t.Errorf("a fault of Next: got %d", code)
		}
		p.Next(Watch, "pods", Cut)
		if code, _, err := c.read(t, watchPods); code != 200 || err == nil {
			t.Errorf("a watch with a fault of Next after Calm: %d, %v", code, err)
		}
		if code, _, err := c.read(t, watchPods); code != 200 || err != nil {
			t.Errorf("a watch after Calm: %d, %v", code, err)
		}
	})
}
