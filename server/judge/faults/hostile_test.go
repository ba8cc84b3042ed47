package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// newServer starts a server of a handler.
func newServer(t *testing.T, handle http.HandlerFunc) *rest.Config {
	server := httptest.NewTLSServer(handle)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())}}
}

// TestFrameWithoutEnd sends a line that never ends: the proxy reads maxFrame bytes of it, and breaks the watch off.
func TestFrameWithoutEnd(t *testing.T) {
	part := []byte(strings.Repeat(" ", 1<<20))
	upstream := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	p := New(t, upstream, Plan{})
	if _, _, err := newClient(t, p, true).read(t, watchPods); err == nil {
		t.Error("the watch ended by itself")
	}
	if got := waitForEntries(t, p, func(e []Entry) bool { return e[0].End > 0 })[0]; !strings.Contains(got.Err,
		"frame of more than") {
		t.Errorf("transcript: %v", got)
	}
}

// TestClientThatNeverReads checks that the proxy stops reading for such a client, serves others, and closes.
func TestClientThatNeverReads(t *testing.T) {
	const most = 64 << 20 // of sockets' buffers; a proxy that buffers takes all
	line := []byte(strings.Repeat(" ", 1<<20-1) + "\n")
	written := make(chan int, 1<<16)
	upstream := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !r.URL.Query().Has("watch") {
			_, _ = io.WriteString(w, "{}")
			return
		}
		for range 1 << 10 {
			if _, err := w.Write(line); err != nil {
				return
			}
			written <- len(line)
		}
	})
	p := New(t, upstream, Plan{})
	slow := newClient(t, p, true)
	response, err := slow.get(t.Context(), watchPods)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	total := 0
	for stuck := false; !stuck; {
		select {
		case n := <-written:
			total += n
		case <-time.After(2 * time.Second): // no more is accepted
			stuck = true
		}
	}
	if total > most {
		t.Errorf("%d bytes were read for a client that reads nothing", total)
	}
	if code, _, err := newClient(t, p, true).read(t, pods); code != 200 || err != nil {
		t.Errorf("another client got %d, %v", code, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestWritesPass checks that no rule selects a write, and that it is forwarded unchanged.
func TestWritesPass(t *testing.T) {
	upstream := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" ")
		_, _ = io.Copy(w, r.Body)
	})
	upstream.Host += "/prefix"
	p := New(t, upstream, parsePlan(t, false, "- {fault: refuse}"))
	c := newClient(t, p, false)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		r, err := http.NewRequestWithContext(t.Context(), method, c.host+"/api/v1/namespaces/a%2Fb/pods?x=1",
			strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if want := method + " /prefix/api/v1/namespaces/a%2Fb/pods?x=1 body"; response.StatusCode != 201 ||
			string(body) != want || err != nil {
			t.Errorf("got %d %q, %v; want %q", response.StatusCode, body, err, want)
		}
	}
}

func TestRecord(t *testing.T) {
	_, upstream := newCluster(t, 0)
	dir := t.TempDir()
	plan := parsePlan(t, false, "- {fault: status, status: Expired, match: {nth: [1]}}")
	p, err := Start(upstream, plan, Options{Record: dir})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, p, false)
	for range 2 {
		if _, _, err := c.read(t, pods); err != nil {
			t.Error(err)
		}
	}
	want := p.Transcript()
	empty := t.TempDir()
	other, err := Start(upstream, plan, Options{Record: empty, Listen: p.listener.Addr().String()})
	if err == nil {
		_ = other.Close()
	}
	if files, readErr := os.ReadDir(empty); err == nil || readErr != nil || len(files) > 0 {
		t.Errorf("a proxy at a taken address: %v, it left %v, %v", err, files, readErr)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTranscript(dir)
	if err != nil || len(got) != len(want) || got[0].Faults[0] != want[0].Faults[0] || got[0].URI != pods ||
		got[1].Code != 200 || got[1].End == 0 {
		t.Errorf("got %v, %v", got, err)
	}
	replay, err := ReadPlan(dir + "/plan.yaml")
	if err != nil || replay.Seed != p.Seed() || len(replay.Rules) != 1 {
		t.Errorf("got %+v, %v", replay, err)
	}
	if info, err := os.Stat(filepath.Join(dir, transcriptFile)); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may read the addresses of requests: %v, %v", info.Mode(), err)
	}
	if again, err := Start(upstream, plan, Options{Record: dir}); err == nil {
		_ = again.Close()
		t.Error("a record was replaced")
	}
}

// A report without clients is an empty list in JSON.
func TestEmptyReport(t *testing.T) {
	if text, err := json.Marshal(Report(nil)); string(text) != "[]" || err != nil {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestReport(t *testing.T) {
	at := func(start, end time.Duration, class Class, code int, faults ...Injected) Entry {
		return Entry{Request: Request{Class: class, Resource: "pods", Client: "a"}, Start: start * time.Second,
			End: end * time.Second, Code: code, Faults: faults}
	}
	other := at(1, 2, Get, 200)
	other.Client = "b"
	got := Report([]Entry{
		other,
		at(10, 11, List, 429, Injected{Fault: "status 429 TooManyRequests"}),
		at(13, 14, List, 200),
		at(14, 20, Watch, 200, Injected{Fault: "cut"}),
		at(21, 22, Watch, 500),
		at(24, 0, Watch, 200),
		at(24, 25, ListPage, 200),
		at(30, 31, StreamList, 200),
	})
	if len(got) != 2 || got[0].UserAgent != "a" || got[1].Requests != 1 {
		t.Fatalf("got %+v", got)
	}
	a := got[0]
	if a.Requests != 7 || a.Lists != 3 || a.StreamLists != 1 || a.Pages != 1 || a.Watches != 3 || a.Retries != 3 ||
		a.MostPerSecond != 2 ||
		a.LongestPause != 2*time.Second || a.FastestRepetition != 3*time.Second || a.Faults["cut"] != 1 {
		t.Errorf("got %+v", a)
	}
}
