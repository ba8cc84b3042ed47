package follow

import (
	"bytes"
	"io"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// TestBookmarkOfSeveral moves the cut of two types by an event of the one that is behind: no event shows that both are
// complete there, and where nothing else changes no confirmation follows.
func TestBookmarkOfSeveral(t *testing.T) {
	ids := []stream.Identity{{Resource: "pods"}, {Resource: "nodes"}}
	status := transfer.Status{Resources: []transfer.ResourceStatus{
		{Stream: sink.Stream{ID: ids[0]}}, {Stream: sink.Stream{ID: ids[1]}}}}
	var out bytes.Buffer
	p := newPrinted(t.Context(), nil, &watchOptions{bookmarks: true}, ndjson, &out)
	p.report = newSyncReport(io.Discard, io.Discard, "")
	if err := p.Open(t.Context(), []sink.Stream{{ID: ids[0]}, {ID: ids[1]}}, sink.Delivered{}); err != nil {
		t.Fatal(err)
	}
	added := stream.Event{Type: keepwatch.Added, Revision: 7, ID: "u/7", Object: text(`{"a":1}`)}
	piece := sink.Piece{Piece: stream.Piece{Messages: []stream.Message{added}, Cursor: 7}}
	if err := p.Write(t.Context(), sink.Batch{Pieces: []sink.Piece{piece}}); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	p.cut(status, 0, sink.Cut{Revision: 7}, false)
	const want = `{"type":"BOOKMARK","revision":"7","resources":["pods","nodes"]}` + "\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

// TestCutLines prints what follows batches: SYNCED at the first cut, and BOOKMARK at a later one that a confirmation
// has moved. The revision of an event is in its own line.
func TestCutLines(t *testing.T) {
	id := stream.Identity{Resource: "pods"}
	status := transfer.Status{Resources: []transfer.ResourceStatus{{Stream: sink.Stream{ID: id}, Objects: 3}}}
	added := stream.Event{Type: keepwatch.Added, Revision: 7, ID: "u/7", Object: text(`{"a":1}`)}
	before := stream.Event{Type: keepwatch.Added, Revision: 6, ID: "u/6", Object: text(`{"a":1}`)}
	gap := stream.Gap{From: 1, To: 2, Reason: keepwatch.GapExpired}
	for name, tt := range map[string]struct {
		bookmarks bool
		messages  []stream.Message
		first     bool
		want      string
	}{
		"synced": {false, []stream.Message{stream.Synced{Revision: 7}}, true,
			`{"type":"SYNCED","revision":"7","count":3,"resources":["pods"]}` + "\n"},
		"a gap": {false, []stream.Message{gap}, false,
			`{"type":"GAP","from":"1","to":"2","reason":"expired","resource":"pods"}` + "\n"},
		"confirmed": {true, nil, false, `{"type":"BOOKMARK","revision":"7","resources":["pods"]}` + "\n"},
		"confirmed after an event": {true, []stream.Message{before}, false,
			`{"type":"ADDED","revision":"6","id":"u/6","resource":"pods","object":{"a":1}}` + "\n" +
				`{"type":"BOOKMARK","revision":"7","resources":["pods"]}` + "\n"},
		"unwanted": {false, nil, false, ""},
		"an event": {true, []stream.Message{added}, false,
			`{"type":"ADDED","revision":"7","id":"u/7","resource":"pods","object":{"a":1}}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := newPrinted(t.Context(), nil, &watchOptions{bookmarks: tt.bookmarks}, ndjson, &out)
			p.report = newSyncReport(io.Discard, io.Discard, "")
			if err := p.Open(t.Context(), []sink.Stream{{ID: id}}, sink.Delivered{}); err != nil {
				t.Fatal(err)
			}
			piece := sink.Piece{Piece: stream.Piece{Messages: tt.messages, Cursor: 7}}
			if err := p.Write(t.Context(), sink.Batch{Pieces: []sink.Piece{piece}}); err != nil {
				t.Fatal(err)
			}
			p.cut(status, 0, sink.Cut{Revision: 7}, tt.first)
			if out.String() != tt.want {
				t.Errorf("printed %s, want %s", &out, tt.want)
			}
		})
	}
}

// ndjson is the default output.
var ndjson = outputFormat{data: true, sink: func(out io.Writer, t *cluster.Target) stream.Sink {
	return newLines(out, t)
}}

// text is an object of which only the JSON matters.
type text string

func (o text) Key() keepwatch.Key           { return keepwatch.Key{} }
func (o text) UID() keepwatch.UID           { return "" }
func (o text) Revision() keepwatch.Revision { return 0 }
func (o text) JSON() []byte                 { return []byte(o) }
func (o text) Metadata() []byte             { return []byte(o) }
