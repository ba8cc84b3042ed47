package past

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// A timeline of many objects with many changes becomes a picture of few marks, which says how many lanes it leaves out.
func TestDrawingIsBounded(t *testing.T) {
	begin := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	timeline := &history.Timeline{From: begin, To: begin.Add(time.Hour), UpTo: sink.Point{Revision: 4000}, Objects: 100}
	for lane := range maxLanes {
		l := history.Lane{Key: keepwatch.Key{Namespace: strings.Repeat("n", 60), Name: fmt.Sprint(lane)}}
		for i := range 100 {
			first := history.Event{Type: history.Modified, Point: sink.Point{Revision: keepwatch.Revision(36*i + 1)},
				Time: begin.Add(time.Duration(36*i) * time.Second)}
			last := first
			last.Point.Revision += 35
			last.Time = last.Time.Add(35 * time.Second)
			l.Runs = append(l.Runs, history.Run{First: first, Last: last, Count: 36})
		}
		timeline.Lanes = append(timeline.Lanes, l)
	}
	d := draw(timeline, pageQuery{Type: "pods", At: "now", Object: "a"})
	if len(d.Lanes) != maxLanes || d.LeftOut != 60 || len(d.Ticks) == 0 || len(d.Ticks) > maxTicks {
		t.Errorf("%d lanes, %d left out, %d ticks", len(d.Lanes), d.LeftOut, len(d.Ticks))
	}
	for _, l := range d.Lanes {
		if len(l.Marks) != 100 || len(l.Bars) != 1 || len([]rune(l.Short)) != maxLabel {
			t.Fatalf("%d marks, bars %+v, label %q", len(l.Marks), l.Bars, l.Short)
		}
		if m := l.Marks[0]; m.Class != "several" || !strings.Contains(m.Title, "changes from revision 1 to") ||
			strings.Contains(m.URL, "at=") {
			t.Errorf("%+v", m)
		}
	}
	if d.Height > 1000 || d.Lanes[0].Bars[0].Width != drawingRight-drawingLeft {
		t.Errorf("height %d, %+v", d.Height, d.Lanes[0].Bars)
	}
}

// The bars of a lane are the times in which an object had the name.
func TestBars(t *testing.T) {
	begin := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	axis := scale{begin, begin.Add(drawingRight*time.Second - drawingLeft*time.Second)} // a second is a unit
	for text, want := range map[string]string{
		"MODIFIED 100": "300+890", "ADDED 100": "400+790", "EXISTED 100": "400+790", "DELETED 100": "300+100",
		"ADDED 100 DELETED 150":                                  "400+50",
		"MODIFIED 10 DELETED 20 ADDED 30 MODIFIED 40 DELETED 50": "300+20 330+20", "ADDED 10 ADDED 30": "310+20 330+860",
		"DELETED 10 ADDED 20": "300+10 320+870",
		// changes that are shown as one
		"ADDED 100~DELETED 105": "400+5", "MODIFIED 100~DELETED 105": "300+105", "DELETED 100~ADDED 105": "300+890",
		"DELETED 10 ADDED 20~DELETED 22 ADDED 30~MODIFIED 31": "300+10 320+2 330+860",
	} {
		var l history.Lane
		words := strings.Fields(strings.ReplaceAll(text, "~", " ~"))
		for i := 0; i < len(words); i += 2 {
			seconds, err := time.ParseDuration(words[i+1] + "s")
			if err != nil {
				t.Fatal(err)
			}
			kind, joined := strings.CutPrefix(words[i], "~")
			e := history.Event{Type: history.EventType(kind), Time: begin.Add(seconds)}
			if joined {
				run := &l.Runs[len(l.Runs)-1]
				run.Last, run.Count = e, run.Count+1
				continue
			}
			l.Runs = append(l.Runs, history.Run{First: e, Last: e, Count: 1})
		}
		var got []string
		for _, b := range bars(l, 10, axis) {
			got = append(got, fmt.Sprintf("%d+%d", b.X, b.Width))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", text, got, want)
		}
	}
}

// A word of a command is quoted if a shell would not take it as it is.
func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"configmaps/web": "configmaps/web",
		"roles.rbac.authorization.k8s.io/system:node": "roles.rbac.authorization.k8s.io/system:node",
		"": "''", "a b": "'a b'", "$(reboot)": "'$(reboot)'", "it's": `'it'\''s'`, "-n": "'-n'", "a\nb": "'a\nb'",
	} {
		if got := quote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
