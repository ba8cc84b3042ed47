package proxy

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The graph has the reads of the last quarter of an hour, and says them in words.
func TestGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var memory, server atomic.Uint64
		r := &recent{}
		late := ClientStatus{UserAgent: "late"}.readsOf()
		go r.run(t.Context(), func() map[readsOf]readTotals {
			totals := map[readsOf]readTotals{{}: {memory: memory.Load(), server: server.Load()}}
			if memory.Load() > 90*30 {
				totals[late] = readTotals{memory: 7, server: memory.Load() - 90*30}
			}
			return totals
		})
		synctest.Wait()
		if s := (Status{Recent: r.status(readsOf{})}); s.Graph() != nil {
			t.Error("there is a graph of nothing")
		}
		for i := range 100 {
			memory.Add(30)
			server.Add(10)
			if i == 99 {
				server.Add(20)
			}
			time.Sleep(graphEvery)
			synctest.Wait()
		}
		if got := r.status(late); len(got) != 10 || got[0] != (RecentReads{7, 30}) || got[9] != (RecentReads{0, 30}) {
			t.Errorf("of a client that has begun late: %v", got)
		}
		s := Status{Recent: r.status(readsOf{}), Reads: []ReadsStatus{{Resource: "pods", Recent: r.status(late)}}}
		if len(s.Recent) != graphPoints-1 || s.Recent[0] != (RecentReads{30, 10}) ||
			s.Recent[graphPoints-2] != (RecentReads{30, 30}) {
			t.Errorf("the points %v", s.Recent)
		}
		g := s.Graph()
		if g.Text != "In the last 15m0s, memory has answered 1800 of 2420 reads." || g.Most != "4.0 reads a second" ||
			!strings.HasPrefix(g.Memory, "0.0,60.0 ") || !strings.HasSuffix(g.Memory, " 600.0,60.0") ||
			!strings.HasSuffix(g.All, " 600.0,0.0") {
			t.Errorf("the graph %+v", *g)
		}
		var page bytes.Buffer
		if err := pageTemplate.ExecuteTemplate(&page, "status.html", s); err != nil {
			t.Fatal(err)
		}
		_, picture, _ := strings.Cut(page.String(), "<svg")
		picture, rest, ok := strings.Cut("<svg"+picture, "</svg>")
		if !strings.Contains(rest, `<svg class="spark"`) || strings.Count(rest, "<polyline") != 2 {
			t.Errorf("the row of a resource: %s", rest)
		}
		if !ok || !strings.Contains(picture, g.All) || !strings.Contains(page.String(), g.Text) {
			t.Errorf("the page %s", page.String())
		}
		for d := xml.NewDecoder(strings.NewReader(picture + "</svg>")); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A request that has begun counts for neither memory nor the server: it may be forwarded later.
func TestGraphOfRequestsThatWait(t *testing.T) {
	p := &Proxy{savings: &savings{}, clients: clients{all: map[string]*clientUse{}}}
	client := ClientStatus{UserAgent: "ada"}.readsOf()
	send := func(answer http.HandlerFunc) {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
		q.Header.Set("User-Agent", "ada")
		p.clients.of(q, true).serve(func(w http.ResponseWriter, q *http.Request) {
			p.recent.add(p.totals())
			answer(w, q)
		}, httptest.NewRecorder(), q, nil)
		p.recent.add(p.totals())
	}
	send(countsAnswers(http.NotFoundHandler()).ServeHTTP)
	send(func(_ http.ResponseWriter, q *http.Request) { countedOf(q).client.forward(reasonRefused) })
	if got := p.recent.status(client); !slices.Equal(got, []RecentReads{{1, 0}, {}, {0, 1}}) {
		t.Errorf("%v", got)
	}
}

// A line of text has a character for each minute, which is higher the more was read in it.
func TestBars(t *testing.T) {
	minute := func(n uint64) []RecentReads { return []RecentReads{{n, 0}, {0, n}, {}, {}} }
	var recent []RecentReads
	for _, n := range []uint64{0, 1, 50, 100} {
		recent = append(recent, minute(n)...)
	}
	if got := Bars(recent); got != "            .=#" {
		t.Errorf("%q", got)
	}
	if got := Bars(recent[6:]); got != "             =#" {
		t.Errorf("of a part of a minute %q", got)
	}
	if got := Bars(nil); got != strings.Repeat(" ", 15) {
		t.Errorf("of nothing %q", got)
	}
	if got := sum(recent[:2], []RecentReads{{1, 2}}); got[1] != (RecentReads{1, 2}) || got[0] != (RecentReads{}) {
		t.Errorf("the sum %v", got)
	}
}
