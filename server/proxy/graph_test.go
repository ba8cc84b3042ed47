package proxy

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
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
		go r.run(t.Context(), func() readTotals { return readTotals{memory: memory.Load(), server: server.Load()} })
		synctest.Wait()
		if s := (Status{Recent: r.status()}); s.Graph() != nil {
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
		s := Status{Recent: r.status()}
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
		picture, _, ok := strings.Cut("<svg"+picture, "</svg>")
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
