package served

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What measures servers measures the plain one: everything arrives, and has figures.
func TestPlain(t *testing.T) {
	b := &Bodies{dir: t.TempDir(), sizes: map[string]int64{}}
	body := bytes.Repeat([]byte("pods"), 1<<18)
	for _, l := range plainLists {
		b.sizes[l.Row] = int64(len(body))
		if err := os.WriteFile(filepath.Join(b.dir, b.name(l)), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, frameName), append(bytes.Repeat([]byte("x"), 8<<10), '\n'),
		0o600); err != nil {
		t.Fatal(err)
	}
	p, err := StartPlain(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	r := NewReport(t.Logf, PlainGo)
	if err := p.measureList(t.Context(), r, listJSON); err != nil {
		t.Error(err)
	}
	if got := r.value(PlainGo, listJSON.Row, wallTime); math.IsNaN(got) || got <= 0 {
		t.Errorf("the list took %v", got)
	}
	// More watchers than one connection accepts.
	f := fanOut{watchers: 150, rate: 1000}
	if err := p.measureFanOut(t.Context(), r, f, "/watch", p.publish, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := r.value(PlainGo, f.row(), "events delivered"); got != 150*100 {
		t.Errorf("%v events were delivered", got)
	}
	if got := r.value(PlainGo, f.row(), cutOff); got != 0 {
		t.Errorf("%v watchers were cut off", got)
	}
	if got := r.value(PlainGo, f.row(), p50); got <= 0 || got > r.value(PlainGo, f.row(), p99) {
		t.Errorf("the median latency is %v", got)
	}
	b.sizes[listGzip.Row] *= 2
	if err := p.measureList(t.Context(), r, listGzip); err == nil {
		t.Error("half a list is a list")
	}
}
